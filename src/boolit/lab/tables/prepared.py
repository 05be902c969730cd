"""A prepared table: what networks read of it, on disk, and how it came about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boolit.lab.errors import UserError
from boolit.saved.columns import Column, Floats
from boolit.saved.description import Label, TableTask

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
