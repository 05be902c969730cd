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
from boolit.lab.datasets.tables import PreparedTable, TableSpec, prepare_table, table_digest
from boolit.lab.datasets.tables.prepared import SPLITS, resample_rows
from boolit.saved.file import TableTask

Share = Annotated[float, Field(gt=0, lt=1)]
ROWS_AT_ONCE = 2**16
ROUNDING = 2.0**-20  # a standard deviation below this share of the mean is float32's rounding


class TableSource(Source):
    """A file and its target; see `boolit.lab.datasets.tables.TableSpec`.

    ``digest`` is the hash of the file's contents, computed if it is not given: as part of every run's key, it makes a changed
    table other data. A quantity is standardised by the training rows; its RMSE is in its own unit.
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
    def _add_digest(cls, options: Any) -> Any:
        if isinstance(options, dict) and "digest" not in options and isinstance(options.get("path"), str):
            return options | {"digest": table_digest(Path(options["path"]))}
        return options

    @property
    def spec(self) -> TableSpec:
        """What `prepare_table` takes."""
        return TableSpec(**self.model_dump(exclude={"name"}))

    def load(self) -> Dataset:
        table = prepare_table(self.spec)
        task = network_task(table)
        splits = {name: Split(x, _targets(y, task)) for name in SPLITS for x, y in [table.split(name)]}
        x, y = table.all_rows()
        return Dataset(
            splits,
            task,
            len(table.classes) if task == "classes" else 1,
            unit=table.target_scale,
            pool=Split(x, _targets(y, task)),
            resample=lru_cache(maxsize=None)(partial(_resample, table, self)),
        )


def network_task(table: PreparedTable) -> Task:
    """The task of a network: two classes need one logit."""
    if table.task == "regress":
        return "regression"
    return "binary" if len(table.classes) == 2 else "classes"


def _resample(table: PreparedTable, source: TableSource, number: int) -> Resample:
    """The split with a number: other rows, with their own mean and scale.

    The stored features are standardised by the training rows of the table's fixed split; each run standardises them again by
    its own training rows, which cancels the first standardisation up to rounding.
    """
    x, y = table.all_rows()
    regress = table.task == "regress"
    strata = np.zeros(len(y), np.int64) if regress else y.numpy().astype(np.int64)
    parts = resample_rows(strata, source.test, source.validation, source.seed, number)
    rows = {name: torch.from_numpy(part) for name, part in parts.items()}
    measured = torch.tensor([flag for column in table.columns for flag in column.measured])
    mean, scale = _mean_and_scale(x, rows["train"])
    mean, scale = mean.where(measured, 0).float(), scale.where(measured, 1).float()
    if not regress:
        return Resample(rows, mean, scale)
    return Resample(rows, mean, scale, *map(float, _mean_and_scale(y.unsqueeze(1), rows["train"])))


def _mean_and_scale(values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of some rows, 1 where they are all the same, computed in pieces.

    Shape: ``(rows, features)`` to ``(features,)`` twice, float64.
    """
    pieces = torch.split(rows, ROWS_AT_ONCE)
    mean = torch.stack([values[piece].double().sum(0) for piece in pieces]).sum(0) / len(rows)
    variance = torch.stack([(values[piece].double() - mean).square().sum(0) for piece in pieces]).sum(0) / len(rows)
    deviation = variance.sqrt()
    return mean, deviation.where(deviation > ROUNDING * mean.abs().clamp(min=ROUNDING), 1)


def _targets(values: Tensor, task: Task) -> Tensor:
    return values.long() if task == "classes" else values.float().unsqueeze(1)
