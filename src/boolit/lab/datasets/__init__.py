"""Datasets of the lab. Built-in ones are imported on first use; `register` adds others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializeAsAny

from boolit.errors import UserError
from boolit.lab.common.plugins import Registry
from boolit.lab.datasets.base import Dataset, Description, Probe, Resample, Source, Split, Task
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, read_contents

__all__ = [
    "DATASETS",
    "AnySource",
    "Dataset",
    "Description",
    "Probe",
    "PublishedDataset",
    "PublishedFile",
    "Resample",
    "Source",
    "Split",
    "Task",
    "dataset_names",
    "describe",
    "load",
    "read_contents",
    "register",
    "source",
    "source_type",
]

DATASETS: Registry[Source] = Registry(
    "dataset",
    {
        name: f"{__name__}.{place}"
        for name, place in {
            "caltech101": "images.photographs:Caltech101",
            "cars": "images.photographs:Cars",
            "chorales": "chorales:Chorales",
            "cifar10": "images.arrays:Cifar10",
            "cifar100": "images.arrays:Cifar100",
            "composed": "czsl.composed:Composed",
            "covertype": "covertype:Covertype",
            "digits": "digits:Digits",
            "embeddings": "embeddings:Embeddings",
            "flowers": "images.photographs:Flowers",
            "holdout": "holdout:Holdout",
            "iraven": "iraven.dataset:Iraven",
            "mitstates": "czsl.mitstates:MitStates",
            "mnist": "images.arrays:Mnist",
            "parity": "boolean:Parity",
            "parity8": "boolean:Parity8",
            "pictures": "images.folder:ImageFolder",
            "stl10": "images.arrays:Stl10",
            "svhn": "images.arrays:Svhn",
            "table": "table:TableSource",
            "xor": "boolean:Xor",
        }.items()
    },
)
dataset_names, source_type = DATASETS.names, DATASETS.get
SourceType = TypeVar("SourceType", bound=Source)


def register(kind: type[SourceType]) -> type[SourceType]:
    """Register a dataset under the default of its field ``name``; a class decorator.

    Args:
        kind: a subclass of `Source`. The name of a built-in dataset raises ValueError.

    Example:
        >>> import torch
        >>> from boolit.lab import Dataset, Source, Split, register_dataset
        >>> @register_dataset
        ... class Ones(Source):
        ...     name: str = "ones"
        ...     samples: int = 512
        ...
        ...     def load(self) -> Dataset:
        ...         return Dataset({"train": Split(torch.ones(self.samples, 2), torch.ones(self.samples, 1))}, "binary", 1)
        >>> len(source({"name": "ones", "samples": 100}).load().splits["train"])
        100
    """
    return DATASETS.register(kind)


def source(table: Mapping[str, Any]) -> Source:
    """Return the dataset that a ``[data]`` table names, with its options validated.

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
    """Load a dataset; later calls return the same tensors."""
    dataset, described = wanted.load(), wanted.describe()
    if described is not None:
        for what in ("inputs", "outputs", "task"):
            expected, actual = getattr(described, what), getattr(dataset, what)
            if expected != actual:
                raise UserError(f"the data of {wanted.name} has {what} {actual}, not {expected}; put the published files there")
    return dataset


@lru_cache(maxsize=32)
def describe(wanted: Source) -> Description:
    """Return the description of a dataset, loading it only if nothing else can tell.

    Example:
        >>> described = describe(source({"name": "mnist"}))
        >>> described.inputs, described.outputs, described.task
        ((28, 28), 10, 'classes')
    """
    described = wanted.describe()
    return load(wanted).description if described is None else described
