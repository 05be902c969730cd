"""A prepared table on disk, and how its rows are split into train, valid and test."""

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

from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.saved.columns import Column, Floats
from boolit.saved.file import Label, TableTask

Rows = npt.NDArray[np.int64]
DESCRIPTION, MATRIX, TARGETS = "table.json", "matrix.f32", "targets.f64"
SPLITS = ("train", "valid", "test")


def split_rows(strata: Rows, test: float, validation: float, seed: int) -> dict[str, Rows]:
    """Stratified splits: every stratum has its share in each, as nearly as whole rows allow.

    Rows are shuffled within their stratum, and every (1/test)-th of the whole sequence becomes a test row; of the others every
    (1/validation)-th becomes a validation row. A stratum too small for its share thus mostly stays with the training rows.

    Shape: ``(rows,)`` to three of about ``(1 − test)·(1 − validation)``, ``(1 − test)·validation`` and ``test`` of the rows.

    Example:
        >>> parts = split_rows(np.repeat([0, 1], [15, 10]), 0.2, 0.25, seed=0)
        >>> {name: (len(rows), int((rows >= 15).sum())) for name, rows in parts.items()}
        {'train': (15, 6), 'valid': (5, 2), 'test': (5, 2)}
    """
    return _cut(_shuffle(strata, generator(seed, "split")), test, validation)


def resample_rows(strata: Rows, test: float, validation: float, seed: int, number: int) -> dict[str, Rows]:
    """Another random split as `split_rows` makes it, of the same sizes, for every number.

    The sequence is also rotated by a random number of places, so that a stratum of a few rows is not always in the same split.

    Example:
        >>> parts = [resample_rows(np.repeat([0, 1], [15, 10]), 0.2, 0.25, 0, number) for number in (1, 2)]
        >>> [len(part["test"]) for part in parts], bool((parts[0]["test"] == parts[1]["test"]).all())
        ([5, 5], False)
    """
    rng = generator(seed, "resample", number)
    order = _shuffle(strata, rng)
    return _cut(np.roll(order, int(torch.randint(len(order), (), generator=rng))), test, validation)


def _shuffle(strata: Rows, rng: torch.Generator) -> Rows:
    """The rows by stratum, in random order within each."""
    return np.lexsort((torch.rand(len(strata), generator=rng, dtype=torch.float64).numpy(), strata))


def _cut(order: Rows, test: float, validation: float) -> dict[str, Rows]:
    is_test = _every(len(order), test)
    rest = order[~is_test]
    is_valid = _every(len(rest), validation)
    parts = {"train": rest[~is_valid], "valid": rest[is_valid], "test": order[is_test]}
    return {name: np.sort(rows) for name, rows in parts.items()}


def _every(rows: int, share: float) -> npt.NDArray[np.bool_]:
    """Marks a share of the places, evenly spaced, beginning half a spacing from the start."""
    marked: npt.NDArray[np.bool_] = np.diff(np.floor(np.arange(rows + 1) * share + 0.5)) > 0
    return marked


@dataclass(frozen=True)
class PreparedTable:
    """The standardised rows of a table by split, and everything a model needs to prepare other rows in the same way.

    ``mean`` and ``scale`` are those of the features; ``target_mean`` and ``target_scale`` those of a quantity to predict.
    ``left_out`` counts the rows without a target, ``dropped`` gives the reason for each column that is not used.
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
    def read(folder: Path) -> PreparedTable:
        """Reads the table in a folder."""
        try:
            entry: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            columns = tuple(Column(**{**column, "levels": tuple(column["levels"])}) for column in entry.pop("columns"))
            mean, scale = (np.array(entry.pop(name)) for name in ("mean", "scale"))
            return PreparedTable(folder, columns=columns, mean=mean, scale=scale, classes=tuple(entry.pop("classes")), **entry)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"the prepared table {folder} is damaged ({error}); delete it to have it prepared again") from None

    @property
    def features(self) -> int:
        """The number of features of a row."""
        return len(self.mean)

    def split(self, name: str) -> tuple[Tensor, Tensor]:
        """Features and targets of a split; the features stay on disk until they are read.

        Shape: ``(rows, features)`` float32 and ``(rows,)`` float64.
        """
        first = sum(self.rows[other] for other in SPLITS[: SPLITS.index(name)])
        rows = slice(first, first + self.rows[name])
        x, y = self.all_rows()
        return x[rows], y[rows]

    def all_rows(self) -> tuple[Tensor, Tensor]:
        """Features and targets of all rows, those of the split ``train`` first, then ``valid`` and ``test``.

        Shape: ``(rows, features)`` float32 and ``(rows,)`` float64.
        """
        # Copy-on-write, as torch.from_numpy warns about read-only arrays; nothing writes to it.
        matrix = np.memmap(self.folder / MATRIX, np.float32, "c", shape=(sum(self.rows.values()), self.features))
        targets = np.fromfile(self.folder / TARGETS, np.float64)
        return torch.from_numpy(matrix), torch.from_numpy(targets)
