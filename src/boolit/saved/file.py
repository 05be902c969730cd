"""Saved models as safetensors files: tensors and a JSON description, checked because it may come from anywhere."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import nn

from boolit.nn.mlp import MLP, Standardise, Unstandardise
from boolit.saved import SavedModelError
from boolit.saved.columns import Column, Kind, column_entry

# What a saved model says of itself, as JSON; and the checks on a text that may come from anywhere.

Label: TypeAlias = "str | int | float | bool"
TableTask = Literal["classify", "regress"]

FORMAT = 2
LONGEST_TEXT = 2**25  # characters of JSON; 15,000 columns of 20 levels have a third of that


@dataclass(frozen=True)
class ModelDescription:
    """Columns, target and network of a model; ``about`` is whatever else is worth knowing, for people."""

    columns: tuple[Column, ...]
    target: str
    task: TableTask
    classes: tuple[Label, ...]
    activation: str
    widths: tuple[int, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> list[str]:
        """The names of all features, in order."""
        return [name for column in self.columns for name in column.features]

    @property
    def outputs(self) -> int:
        """How many numbers the network answers with: one for a quantity and for two classes."""
        return len(self.classes) if len(self.classes) > 2 else 1


def description_text(description: ModelDescription) -> str:
    """A description as JSON."""
    entry = {
        **vars(description),
        "columns": [column_entry(column) for column in description.columns],
        "format": FORMAT,
    }
    return json.dumps(entry, ensure_ascii=False, allow_nan=False)


def parse_description(text: str) -> ModelDescription:
    """The description in a JSON text; a ValueError says what is wrong with it.

    Example:
        >>> parse_description("{}")
        Traceback (most recent call last):
        ValueError: its format is None, this version of boolit reads 2
    """
    _demand(len(text) <= LONGEST_TEXT, f"its description has {len(text):,} characters, more than {LONGEST_TEXT:,}")
    try:
        entry = json.loads(text)
    except RecursionError:
        raise ValueError("its description is nested too deeply") from None
    _demand(isinstance(entry, dict), "its description is no table")
    _demand(entry.get("format") == FORMAT, f"its format is {entry.get('format')!r}, this version of boolit reads {FORMAT}")
    columns = tuple(_column(each) for each in _list(entry, "columns"))
    classes = tuple(_list(entry, "classes"))
    _demand(len(columns) > 0, "it has no columns")
    widths = tuple(_list(entry, "widths"))
    task = entry.get("task")
    _demand(task in get_args(TableTask), f"its task is {task!r}")
    _demand(all(isinstance(label, (str, int, float)) for label in classes), "its classes are not plain values")
    _demand((len(classes) >= 2) == (task == "classify"), f"it has {len(classes)} classes, which does not fit its task")
    _demand(all(type(width) is int and width > 0 for width in widths), "its widths are not positive whole numbers")
    about = entry.get("about", {})
    _demand(isinstance(about, dict), "what it says about itself is no table")
    return ModelDescription(columns, _word(entry, "target"), task, classes, _word(entry, "activation"), widths, about)


def _column(entry: Any) -> Column:
    _demand(isinstance(entry, dict), "one of its columns is no table")
    levels, fill, kind = tuple(_list(entry, "levels")), entry.get("fill"), entry.get("kind")
    _demand(kind in get_args(Kind), f"one of its columns is of the kind {kind!r}")
    _demand(all(isinstance(level, str) for level in levels), "the levels of one of its columns are not texts")
    _demand(isinstance(fill, (int, float)) and math.isfinite(fill), "what fills one of its columns is no number")
    flags = [entry.get(name) for name in ("missing", "other")]
    _demand(all(isinstance(flag, bool) for flag in flags), "one of its columns does not say what it has features for")
    return Column(_word(entry, "name"), kind, float(fill), flags[0], levels, flags[1])


def _list(entry: dict[str, Any], name: str) -> list[Any]:
    value = entry.get(name)
    _demand(isinstance(value, list), f"its {name} are no list")
    return list(value or [])


def _word(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    _demand(isinstance(value, str), f"its {name} is no text")
    return str(value)


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


# Reading and writing a saved model: tensors and a JSON description in one safetensors file.

ENTRY = "boolit"
CHECKSUM = "sha256"


def write(path: Path, module: nn.Module, description: ModelDescription) -> None:
    """Writes a model, whole or not at all."""
    from safetensors.torch import save

    tensors = {name: values.contiguous() for name, values in module.state_dict().items()}
    text = description_text(description)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(save(tensors, {ENTRY: text, CHECKSUM: checksum(tensors, text)}))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def checksum(tensors: dict[str, torch.Tensor], text: str) -> str:
    """The SHA-256 of a description and of name, type, shape and values of every tensor: damage does not pass for a model."""
    digest = hashlib.sha256(text.encode())
    for name, values in sorted(tensors.items()):
        digest.update(f"\n{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read(path: Path) -> tuple[nn.Sequential, ModelDescription]:
    """The module, in evaluation mode, and the description in a file."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise SavedModelError(f"{path} is a device, a pipe or a socket, which may have no end; give the file of a model")
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            text = metadata.get(ENTRY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (safe_open is no mapping)
    except FileNotFoundError:
        raise SavedModelError(f"there is no saved model {path}; check the path") from None
    except (SafetensorError, OSError) as error:
        raise SavedModelError(f"{path} is no readable safetensors file ({error}); save the model again") from None
    if text is None:
        raise SavedModelError(
            f"{path} is a safetensors file, but not one of boolit's; give the best.safetensors of boolit compare"
        )
    try:
        description = parse_description(text)
        if metadata.get(CHECKSUM) != checksum(tensors, text):
            raise ValueError("its content is not what its checksum says")
        return _load_network(description, tensors), description
    except (ValueError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise SavedModelError(f"{path} is damaged or of another version ({reason}); save the model again") from None


def build_network(features: int, widths: Sequence[int], outputs: int, spec: str, in_unit: bool) -> nn.Sequential:
    """Standardisation, then an MLP with batch normalisation; widths are counted before the activation.

    With ``in_unit`` the answers are in the target's unit.

    Example:
        >>> build_network(3, [8], 2, "or_ail", in_unit=False).eval()(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    before = Standardise(torch.zeros(features), torch.ones(features))
    after = [Unstandardise(torch.zeros(()), torch.ones(()))] if in_unit else []
    return nn.Sequential(before, *MLP(features, widths, outputs, spec, normalisation="batch"), *after)


def _load_network(description: ModelDescription, tensors: dict[str, torch.Tensor]) -> nn.Sequential:
    """The network, with these tensors; on the device ``meta`` first, so that a false size takes no memory."""
    if len(description.widths) > len(tensors):
        raise ValueError(f"it has {len(tensors)} tensors for {len(description.widths)} hidden layers")
    if sum(description.widths) > sum(values.numel() for values in tensors.values()):
        raise ValueError(f"its widths {str(description.widths)[:80]} are larger than what it holds")
    with torch.device("meta"):
        shape = (len(description.features), description.widths, description.outputs)
        module = build_network(*shape, description.activation, in_unit=description.task == "regress")
    for name, expected in module.state_dict().items():
        if name in tensors and tensors[name].dtype != expected.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype} instead of {expected.dtype}")
        if name in tensors and not bool(tensors[name].isfinite().all()):
            raise ValueError(f"{name} has values that are not finite")
    module.load_state_dict(tensors, assign=True)
    return module.eval()
