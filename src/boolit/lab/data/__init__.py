"""Datasets: one file each. A file here, or any module that calls `register`, adds one."""

from __future__ import annotations

import difflib
import math
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from boolit.lab.data._dataset import Dataset, Description, Draw, Encode, Probe, Resample, Source, Split, Task
from boolit.lab.data._parsed import tensors
from boolit.lab.data._published import Published
from boolit.lab.data._remote import Remote
from boolit.lab.errors import UserError
from boolit.lab.folders import data_folder
from boolit.lab.memory import require_memory

__all__ = [
    "Dataset",
    "Description",
    "Draw",
    "Encode",
    "Probe",
    "Published",
    "Remote",
    "Resample",
    "Source",
    "Split",
    "Task",
    "check_memory",
    "dataset_names",
    "describe",
    "load",
    "register",
    "source",
    "source_type",
    "tensors",
]

FLOAT_BYTES, COPIES = 4, 2  # samples, and what they are made from
_SOURCES: dict[str, type[Source]] = {}
S = TypeVar("S", bound=Source)


def register(kind: type[S]) -> type[S]:
    """Makes a dataset known under the default of its field ``name``, which none of boolit's own may have."""
    name = kind.model_fields["name"].default
    if not _built_in(kind) and name in _known() and _built_in(_known()[name]):
        raise ValueError(f"{name!r} is already a dataset of boolit; choose another name")
    _SOURCES[name] = kind
    return kind


def dataset_names() -> list[str]:
    """Every dataset there is.

    Example:
        >>> {"parity", "parity8", "xor"} <= set(dataset_names())
        True
    """
    return sorted(_known())


def source(table: Mapping[str, Any]) -> Source:
    """The dataset a ``[data]`` table names, its options checked.

    Example:
        >>> source({"name": "xor", "spread": 0.2}).load().inputs
        (2,)
    """
    return source_type(table.get("name")).model_validate(dict(table))


def source_type(name: object) -> type[Source]:
    """The class of the dataset with a name."""
    known = _known()
    if not isinstance(name, str) or name not in known:
        near = difflib.get_close_matches(str(name), known, n=2) or sorted(known)
        raise ValueError(f"unknown dataset {name!r}; choose {' or '.join(near)}")
    return known[name]


@lru_cache(maxsize=8)
def load(wanted: Source) -> Dataset:
    """A source's data, made or read once: all cohorts share the tensors."""
    check_memory(wanted)
    dataset, described = wanted.load(), wanted.describe()
    if described is not None:
        _compare(wanted.name, described, dataset)
    return dataset


def describe(wanted: Source) -> Description:
    """What is known of a source's data without loading it; it is loaded only where nothing else can tell.

    Example:
        >>> described = describe(source({"name": "mnist"}))
        >>> described.inputs, described.outputs, described.task
        ((28, 28), 10, 'classes')
    """
    return _described(wanted, data_folder())


@lru_cache(maxsize=32)
def _described(wanted: Source, _folder: Path) -> Description:
    """Found once for all cohorts of a plan: some sources read lists of files for it."""
    described = wanted.describe()
    return load(wanted).description if described is None else described


def check_memory(wanted: Source) -> None:
    """Refuses data that is generated at once and does not fit into this machine."""
    described = wanted.describe() if wanted.generated else None
    if described is not None:
        numbers = sum(described.samples.values()) * math.prod(described.inputs)
        require_memory(COPIES * FLOAT_BYTES * numbers, f"the data {wanted.name}", "ask for fewer samples")


def _compare(name: str, described: Description, dataset: Dataset) -> None:
    """Plans rely on what a source says beforehand, so data that is otherwise is refused."""
    pairs = {
        "samples of shape": (described.inputs, dataset.inputs),
        "outputs": (described.outputs, dataset.outputs),
        "the task": (described.task, dataset.task),
        "the splits": (sorted(described.samples), sorted(dataset.splits)),
    }
    for what, (said, found) in pairs.items():
        if said != found:
            raise UserError(f"the data of {name} has {what} {found}, not {said}; put the published files there, or fetch them")


def _known() -> dict[str, type[Source]]:
    _import_all()
    return _SOURCES


def _built_in(kind: type) -> bool:
    return kind.__module__.startswith(f"{__name__}.")


@lru_cache(maxsize=1)
def _import_all() -> None:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            import_module(f"{__name__}.{module.name}")
