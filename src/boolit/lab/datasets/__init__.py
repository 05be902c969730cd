"""Datasets: each a class in a file of its own room. Any module that calls `register` adds one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializeAsAny

from boolit.errors import UserError
from boolit.lab.common.files import data_folder
from boolit.lab.common.parallel import require_memory
from boolit.lab.common.registry import Registry
from boolit.lab.datasets.base import Dataset, Description, Draw, Encode, Probe, Resample, Source, Split, Task
from boolit.lab.datasets.download.fetch import load_tensors
from boolit.lab.datasets.download.published import PublishedDataset, PublishedFile

__all__ = [
    "DATASETS",
    "AnySource",
    "Dataset",
    "Description",
    "Draw",
    "Encode",
    "Probe",
    "PublishedDataset",
    "PublishedFile",
    "Resample",
    "Source",
    "Split",
    "Task",
    "check_memory",
    "dataset_names",
    "describe",
    "load",
    "load_tensors",
    "register",
    "source",
    "source_type",
]

FLOAT_BYTES, COPIES = 4, 2  # samples, and what they are made from

DATASETS: Registry[Source] = Registry(
    "dataset",
    {
        name: f"{__name__}.{place}"
        for name, place in {
            "caltech101": "images.photographs:Caltech101",
            "cars": "images.photographs:Cars",
            "chorales": "chorales:Chorales",
            "cifar10": "images.cifar:Cifar10",
            "cifar100": "images.cifar:Cifar100",
            "composed": "composition.composed:Composed",
            "covertype": "covertype:Covertype",
            "digits": "digits:Digits",
            "embeddings": "features.embeddings:Embeddings",
            "flowers": "images.photographs:Flowers",
            "holdout": "holdout:Holdout",
            "iraven": "raven.dataset:Iraven",
            "mitstates": "composition.mitstates:MitStates",
            "mnist": "images.mnist:Mnist",
            "parity": "boolean:Parity",
            "parity8": "boolean:Parity8",
            "pictures": "images.folder:ImageFolder",
            "stl10": "images.stl10:Stl10",
            "svhn": "images.svhn:Svhn",
            "table": "tables.dataset:TableSource",
            "xor": "boolean:Xor",
        }.items()
    },
)
dataset_names, source_type = DATASETS.names, DATASETS.get
SourceType = TypeVar("SourceType", bound=Source)


def register(kind: type[SourceType]) -> type[SourceType]:
    """Makes a dataset known by the default of its field ``name``, for the ``[data]`` table of studies: a class decorator.

    Args:
        kind: a subclass of `Source`; a name that one of boolit's own has is a ValueError.

    Example:
        >>> import torch
        >>> from boolit.lab import Dataset, Source, Split, register_dataset
        >>> @register_dataset
        ... class Ring(Source):
        ...     name: str = "ring"
        ...     samples: int = 512
        ...
        ...     def load(self) -> Dataset:
        ...         x = torch.randn(2 * self.samples, 2, generator=torch.Generator().manual_seed(0))
        ...         y = (x.norm(dim=1, keepdim=True) > 1).float()
        ...         halves = {"train": slice(None, self.samples), "test": slice(self.samples, None)}
        ...         return Dataset({name: Split(x[part], y[part]) for name, part in halves.items()}, "binary", outputs=1)
        >>> source({"name": "ring", "samples": 100}).load().description.samples
        {'train': 100, 'test': 100}
    """
    return DATASETS.register(kind)


def source(table: Mapping[str, Any]) -> Source:
    """The dataset a ``[data]`` table names, its options checked.

    Example:
        >>> source({"name": "xor", "spread": 0.2}).load().inputs
        (2,)
    """
    return source_type(table.get("name")).model_validate(dict(table))


def _nested_source(value: Any) -> Source:
    if isinstance(value, Source):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f'a table that names a dataset, such as {{name = "parity"}}, not {value!r}')
    return source(value)


AnySource = Annotated[SerializeAsAny[Source], BeforeValidator(_nested_source)]  # the field of a dataset made of another


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
    return _cached_description(wanted, data_folder())


@lru_cache(maxsize=32)
def _cached_description(wanted: Source, _folder: Path) -> Description:
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
