"""Covertype: the forest on 581,012 patches of land, from cartographic variables (a:covtype)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from boolit.lab.common.devices import DeviceCopies
from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Dataset, Description, Split, Task
from boolit.lab.datasets.download.fetch import Tensors, load_tensors
from boolit.lab.datasets.download.published import PublishedDataset

COLUMNS, CONTINUOUS = 54, 10  # the continuous ones come first, then 4 areas and 40 soils, one 0 or 1 each
CLASSES = 7
TEST_SHARE = 0.2
VERSION = 1


class Covertype(PublishedDataset, published="covertype"):
    """A fixed random 80:20 split. ``subset`` is the share of the training rows to train on, ``validation`` that of them to hold
    out as the split ``valid``; both are the same rows at every time.

    NOTE[paper]: how columns are scaled is not said. The continuous ones get mean 0 and standard deviation 1 over the rows that
    are trained on. The others stay 0 and 1: soil 15 occurs 3 times in 581,012, so it would get values of 440.
    NOTE[paper]: the authors' random split is not known; this is another one of the same sizes.
    """

    name: Literal["covertype"] = "covertype"
    subset: float = Field(1.0, gt=0, le=1)
    validation: float = Field(0.0, ge=0, lt=1)

    task: ClassVar[Task] = "classes"

    def describe(self) -> Description:
        train, held_out = self._rows(self.samples["train"])
        valid = self.samples["train"] - held_out
        samples = {"train": train, "test": self.samples["test"]} | ({"valid": valid} if valid else {})
        return Description((COLUMNS,), CLASSES, self.task, samples)

    def load(self) -> Dataset:
        found = load_tensors(self.files, VERSION, parse)
        x, y = found["x"], found["y"]
        rows = len(x) - int(TEST_SHARE * len(x))
        train, held_out = self._rows(rows)
        splits = {"train": Split(x[:train], y[:train]), "test": Split(x[rows:], y[rows:])}
        if held_out < rows:
            splits["valid"] = Split(x[held_out:rows], y[held_out:rows])
        return Dataset(splits, self.task, CLASSES, encode=standardiser(splits["train"].x))

    def _rows(self, count: int) -> tuple[int, int]:
        """How many of the training rows are trained on, and where those for validation begin."""
        held_out = count - round(self.validation * count)
        return max(1, round(self.subset * held_out)), held_out


def parse(contents: Mapping[str, bytes]) -> Tensors:
    """All rows, in the random order whose last fifth is the test split: so every split is a part of the mapped file."""
    (content,) = contents.values()
    table = _table(content)
    order = torch.randperm(len(table), generator=generator(0, "covertype", "split"))
    shuffled = torch.from_numpy(table)[order]
    return {"x": shuffled[:, :COLUMNS].contiguous(), "y": shuffled[:, COLUMNS].long() - 1}


def _table(content: bytes) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    import pyarrow as pa
    from pyarrow import csv

    names = [str(column) for column in range(COLUMNS + 1)]
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.int16()))
    columns = csv.read_csv(pa.BufferReader(content), csv.ReadOptions(column_names=names), convert_options=options)
    return np.stack([column.to_numpy() for column in columns.columns], axis=1)


def standardiser(train: Tensor) -> Callable[[Tensor], Tensor]:
    """What gives the continuous columns mean 0 and standard deviation 1 over some rows, and leaves the others.

    Shape: ``(rows, columns)``; what is returned takes ``(…, columns)``.
    """
    shift, scale = torch.zeros(COLUMNS), torch.ones(COLUMNS)
    measured = train[:, :CONTINUOUS].double()
    deviations = measured.std(0, correction=0)
    scale[:CONTINUOUS] = deviations.where(deviations > 0, 1).reciprocal().float()
    shift[:CONTINUOUS] = -measured.mean(0).float() * scale[:CONTINUOUS]
    shifts, scales = DeviceCopies(shift), DeviceCopies(scale)
    return lambda x: torch.addcmul(shifts.on(x.device), x.float(), scales.on(x.device))
