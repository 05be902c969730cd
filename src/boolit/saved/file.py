"""Reading and writing a saved model: tensors and a JSON description in one safetensors file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from torch import nn

from boolit.saved.description import Description, described, description_text
from boolit.saved.errors import SavedModelError
from boolit.saved.network import network

ENTRY = "boolit"
CHECKSUM = "sha256"


def write(path: Path, module: nn.Module, description: Description) -> None:
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


def read(path: Path) -> tuple[nn.Sequential, Description]:
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
        description = described(text)
        if metadata.get(CHECKSUM) != checksum(tensors, text):
            raise ValueError("its content is not what its checksum says")
        return _filled(description, tensors), description
    except (ValueError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise SavedModelError(f"{path} is damaged or of another version ({reason}); save the model again") from None


def _filled(description: Description, tensors: dict[str, torch.Tensor]) -> nn.Sequential:
    """The network, with these tensors; on the device ``meta`` first, so that a false size takes no memory."""
    if len(description.widths) > len(tensors):
        raise ValueError(f"it has {len(tensors)} tensors for {len(description.widths)} hidden layers")
    if sum(description.widths) > sum(values.numel() for values in tensors.values()):
        raise ValueError(f"its widths {str(description.widths)[:80]} are larger than what it holds")
    with torch.device("meta"):
        shape = (len(description.features), description.widths, description.outputs)
        module = network(*shape, description.activation, in_unit=description.task == "regress")
    for name, expected in module.state_dict().items():
        if name in tensors and tensors[name].dtype != expected.dtype:
            raise ValueError(f"{name} is {tensors[name].dtype} instead of {expected.dtype}")
        if name in tensors and not bool(tensors[name].isfinite().all()):
            raise ValueError(f"{name} has values that are not finite")
    module.load_state_dict(tensors, assign=True)
    return module.eval()
