"""Datasets of the lab. Built-in ones are imported on first use; `register` adds others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny

from boolit.errors import UserError
from boolit.lab.common.plugins import Registry
from boolit.lab.common.random import generator, keys, stratified_order
from boolit.lab.datasets.base import Dataset, Description, Source, Split

BUILT_IN = {  # names and classes by module
    "boolean": {"parity": "Parity", "parity8": "Parity8", "xor": "Xor"},
    "chorales": {"chorales": "Chorales"},
    "covertype": {"covertype": "Covertype"},
    "czsl.composed": {"composed": "Composed"},
    "czsl.mitstates": {"mitstates": "MitStates"},
    "embeddings": {"embeddings": "Embeddings"},
    "images.arrays": {"cifar10": "Cifar10", "cifar100": "Cifar100", "digits": "Digits"}
    | {"fashion": "Fashion", "mnist": "Mnist", "stl10": "Stl10", "svhn": "Svhn"},
    "images.photographs": {"caltech101": "Caltech101", "cars": "Cars", "flowers": "Flowers"},
    "iraven": {"iraven": "Iraven"},
    "keel": {"keel": "Keel"},
    "table": {"table": "TableSource"},
}
PLACES = {name: f"{__name__}.{module}:{kind}" for module, kinds in BUILT_IN.items() for name, kind in kinds.items()}
DATASETS: Registry[type[Source]] = Registry("dataset", {**PLACES, "holdout": f"{__name__}:Holdout"})
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
    return DATASETS.add(kind.model_fields["name"].default, kind)


def source(table: Mapping[str, Any] | Source) -> Source:
    """Return the dataset that a ``[data]`` table names, with its options validated. A dataset is returned as it is.

    Example:
        >>> source({"name": "xor", "spread": 0.2}).load().inputs
        (2,)
    """
    if isinstance(table, Source):
        return table
    if not isinstance(table, Mapping):
        raise ValueError(f'a table that names a dataset, such as {{name = "parity"}}, not {table!r}')
    return source_type(table.get("name")).model_validate(dict(table))


AnySource = Annotated[SerializeAsAny[Source], BeforeValidator(source)]  # the field of a dataset made of another


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
    """Return the description of a dataset. It is loaded only if its options do not determine the description."""
    described = wanted.describe()
    return load(wanted).description if described is None else described


# The rows of a dataset that a search may use: rows to train on and rows to choose by, but no test rows.
SHARE = 0.2


class Holdout(Source):
    """The splits ``train`` and ``valid`` ``of`` another dataset.

    With ``share``, ``valid`` is that share of the training rows, stratified and drawn with ``seed``; without, it is the
    dataset's own. Rows are encoded as in the whole dataset. Where training draws its samples in every step, the held-out
    samples are drawn once. A dataset with extra metrics needs a split ``valid``.
    """

    name: Literal["holdout"] = "holdout"
    of: AnySource
    share: float | None = Field(SHARE, gt=0, lt=1)
    seed: int = 0

    def describe(self) -> Description:
        whole = describe(self.of)
        rows, valid = whole.samples["train"], whole.samples.get("valid", 0)
        if self.share is not None:
            valid = round(self.share * rows)
            rows -= valid
        return replace(whole, samples={"train": rows, "valid": valid})

    def load(self) -> Dataset:
        whole = load(self.of)
        if self.share is None:
            if "valid" not in whole.splits:
                raise UserError(f"{self.of.name} has no split valid; give the share of its training rows to hold out")
            return replace(whole, splits={name: whole.splits[name] for name in ("train", "valid")})
        rows = whole.splits["train"]
        held_out, name = round(self.share * len(rows)), self.of.name
        if not 0 < held_out < len(rows):
            raise UserError(f"{self.share:g} of {len(rows)} training rows of {name} cannot be held out; give it more rows")
        if whole.extra_metrics is not None:
            raise UserError(f"{name} has extra metrics but no split valid to choose by; give it one")
        if whole.task == "regression" or rows.y.numel() != len(rows):
            order = torch.randperm(len(rows), generator=generator(self.seed, "holdout", name, "order"))
        else:
            order = stratified_order(rows.y.flatten().long(), self.seed, "holdout", name)
        parts = (part.sort().values for part in (order[:held_out], order[held_out:]))
        valid, train = (Split(rows.x[part], rows.y[part]) for part in parts)
        if whole.draw is not None:
            x, y = whole.draw(valid.x.unsqueeze(0), valid.y.unsqueeze(0), keys([self.seed], "holdout", "draw"), 0)
            valid = Split(x.squeeze(0), y.squeeze(0))
        return replace(whole, splits={"train": train, "valid": valid})


def for_choosing(data: Source) -> Holdout:
    """Return the rows that a search may use: the dataset's ``valid``, or rows held out of ``train`` if it has none."""
    return Holdout(of=data, share=None if "valid" in describe(data).samples else SHARE)
