"""A prepared table on disk, and which of its rows are trained on, validated on and tested on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boolit.lab.common.errors import UserError
from boolit.lab.common.random import generator
from boolit.saved.columns import Column, Floats
from boolit.saved.file import Label, TableTask

# Which rows are trained on, validated on and tested on.

Rows = npt.NDArray[np.int64]


def split(strata: Rows, test: float, validation: float, seed: int) -> dict[str, Rows]:
    """Rows by split, every stratum with its share in each as nearly as whole rows allow.

    Rows are put in a random order within their stratum, and every (1/test)-th of the whole line is tested on; of the others
    every (1/validation)-th is validated on. A stratum too small for its share is thus left to the training rows most often.

    Shape: ``(rows,)`` to three of about ``(1 − test)·(1 − validation)``, ``(1 − test)·validation`` and ``test`` of the rows.

    Example:
        >>> parts = split(np.repeat([0, 1], [15, 10]), 0.2, 0.25, seed=0)
        >>> {name: (len(rows), int((rows >= 15).sum())) for name, rows in parts.items()}
        {'train': (15, 6), 'valid': (5, 2), 'test': (5, 2)}
    """
    return _cut(_line(strata, generator(seed, "split")), test, validation)


def resample(strata: Rows, test: float, validation: float, seed: int, number: int) -> dict[str, Rows]:
    """The split of a number: as `split`, and as large for every number, but the rows are drawn anew.

    The line is turned by a random number of places besides, so that a stratum of a few rows is not in the same part each time.

    Example:
        >>> parts = [resample(np.repeat([0, 1], [15, 10]), 0.2, 0.25, 0, number) for number in (1, 2)]
        >>> [len(part["test"]) for part in parts], bool((parts[0]["test"] == parts[1]["test"]).all())
        ([5, 5], False)
    """
    drawn = generator(seed, "resample", number)
    line = _line(strata, drawn)
    return _cut(np.roll(line, int(torch.randint(len(line), (), generator=drawn))), test, validation)


def _line(strata: Rows, drawn: torch.Generator) -> Rows:
    """The rows by stratum, in a random order within each."""
    return np.lexsort((torch.rand(len(strata), generator=drawn, dtype=torch.float64).numpy(), strata))


def _cut(line: Rows, test: float, validation: float) -> dict[str, Rows]:
    tested = _every(len(line), test)
    rest = line[~tested]
    validated = _every(len(rest), validation)
    parts = {"train": rest[~validated], "valid": rest[validated], "test": line[tested]}
    return {name: np.sort(rows) for name, rows in parts.items()}


def _every(rows: int, share: float) -> npt.NDArray[np.bool_]:
    """Marks a share of some places, evenly spread, beginning in the middle of the first stretch."""
    marks = np.floor(np.arange(rows + 1) * share + 0.5)
    marked: npt.NDArray[np.bool_] = np.diff(marks) > 0
    return marked


# A prepared table: what networks read of it, on disk, and how it came about.

DESCRIPTION, MATRIX, TARGETS = "table.json", "matrix.f32", "targets.f64"
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Prepared:
    """The rows of a table by split, standardised, and everything a model needs to do the same to other rows.

    ``mean`` and ``scale`` are of the features; ``target_mean`` and ``target_scale`` of a quantity to predict. ``dropped`` says
    of each column that is not used why.
    """

    folder: Path
    target: str
    task: TableTask
    classes: tuple[Label, ...]
    columns: tuple[Column, ...]
    mean: Floats
    scale: Floats
    target_mean: float
    target_scale: float
    rows: Mapping[str, int]
    left_out: int
    dropped: Mapping[str, str]

    @staticmethod
    def read(folder: Path) -> Prepared:
        """The one a folder holds."""
        try:
            entry: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            columns = tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in entry.pop("columns"))
            mean, scale = (np.array(entry.pop(name)) for name in ("mean", "scale"))
            return Prepared(folder, columns=columns, mean=mean, scale=scale, classes=tuple(entry.pop("classes")), **entry)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"the prepared table {folder} is damaged ({error}); delete it to have it prepared again") from None

    @property
    def features(self) -> int:
        """How many numbers a network reads of a row."""
        return len(self.mean)

    def split(self, name: str) -> tuple[Tensor, Tensor]:
        """Features and targets of a split; the features stay on disk until they are read.

        Shape: ``(rows, features)`` float32 and ``(rows,)`` float64.
        """
        first = sum(self.rows[other] for other in SPLITS[: SPLITS.index(name)])
        rows = slice(first, first + self.rows[name])
        x, y = self.whole()
        return x[rows], y[rows]

    def whole(self) -> tuple[Tensor, Tensor]:
        """Features and targets of all rows, those of the split ``train`` first, then ``valid`` and ``test``.

        Shape: ``(rows, features)`` float32 and ``(rows,)`` float64.
        """
        # Copy on write, which nobody does: torch wants memory that could be written to.
        matrix = np.memmap(self.folder / MATRIX, np.float32, "c", shape=(sum(self.rows.values()), self.features))
        targets = np.fromfile(self.folder / TARGETS, np.float64)
        return torch.from_numpy(matrix), torch.from_numpy(targets)
