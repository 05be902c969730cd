"""A table of the user's own: any CSV, TSV, Parquet or .npz file, with a column to predict."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from boolit.lab.datasets.base import Dataset, Resample, Source, Split, Task
from boolit.lab.datasets.tables import Prepared, Wanted, digest_of, prepared
from boolit.lab.datasets.tables.prepared import SPLITS, resample
from boolit.saved.file import TableTask

Share = Annotated[float, Field(gt=0, lt=1)]
ROWS_AT_ONCE = 2**16
ROUNDING = 2.0**-20  # a spread of so small a share of its mean is float32's rounding, not a quantity's


class Table(Source):
    """A file and its target; see `boolit.lab.datasets.tables.Wanted`.

    ``digest`` is of the file's contents and found if it is not given: so it is part of every run's key, and a changed table is
    other data. A quantity is standardised by the training rows; its RMSE is in its own unit.
    """

    name: Literal["table"] = "table"
    path: str
    target: str
    task: TableTask | None = None
    test: Share = 0.2
    validation: Share = 0.2
    levels: int = Field(20, ge=1)
    drop: Annotated[tuple[str, ...], Field(strict=False)] = ()
    seed: int = 0
    digest: str

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, options: Any) -> Any:
        if isinstance(options, dict) and "digest" not in options and isinstance(options.get("path"), str):
            return options | {"digest": digest_of(Path(options["path"]))}
        return options

    @property
    def wanted(self) -> Wanted:
        """The same, in the words of the room that reads tables."""
        return Wanted(**self.model_dump(exclude={"name"}))

    def load(self) -> Dataset:
        table = prepared(self.wanted)
        task = network_task(table)
        splits = {name: Split(x, _targets(y, task)) for name in SPLITS for x, y in [table.split(name)]}
        x, y = table.whole()
        return Dataset(
            splits,
            task,
            len(table.classes) if task == "classes" else 1,
            unit=table.target_scale,
            pool=Split(x, _targets(y, task)),
            resample=lru_cache(maxsize=None)(partial(_resample, table, self)),
        )


def network_task(table: Prepared) -> Task:
    """What is asked of a network: of two classes, one logit."""
    if table.task == "regress":
        return "regression"
    return "binary" if len(table.classes) == 2 else "classes"


def _resample(table: Prepared, wanted: Table, number: int) -> Resample:
    """The split of a number: other rows, and moments of its own.

    The stored features are standardised by the training rows of the table's fixed split; a run standardises them again by its
    own, which takes the first out again but for rounding.
    """
    x, y = table.whole()
    regress = table.task == "regress"
    strata = np.zeros(len(y), np.int64) if regress else y.numpy().astype(np.int64)
    parts = resample(strata, wanted.test, wanted.validation, wanted.seed, number)
    rows = {name: torch.from_numpy(part) for name, part in parts.items()}
    measured = torch.tensor([flag for column in table.columns for flag in column.measured])
    mean, deviation = _moments(x, rows["train"])
    mean, deviation = mean.where(measured, 0), deviation.where(measured, 1)
    if not regress:
        return Resample(rows, mean.float(), deviation.float())
    target_mean, target_deviation = _moments(y.unsqueeze(1), rows["train"])
    return Resample(rows, mean.float(), deviation.float(), float(target_mean), float(target_deviation))


def _moments(values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of some rows, 1 where they are all the same, read in pieces.

    Shape: ``(rows, features)`` to ``(features,)`` twice, float64.
    """
    pieces = torch.split(rows, ROWS_AT_ONCE)
    mean = torch.stack([values[piece].double().sum(0) for piece in pieces]).sum(0) / len(rows)
    square = torch.stack([(values[piece].double() - mean).square().sum(0) for piece in pieces]).sum(0) / len(rows)
    deviation = square.sqrt()
    return mean, deviation.where(deviation > ROUNDING * mean.abs().clamp(min=ROUNDING), 1)


def _targets(values: Tensor, task: Task) -> Tensor:
    return values.long() if task == "classes" else values.float().unsqueeze(1)
