"""A table of the user's own: any CSV, TSV, Parquet or .npz file, with a column to predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import Tensor

from boolit.lab.data import register
from boolit.lab.data._dataset import Dataset, Source, Split, Task
from boolit.lab.tables import Prepared, Wanted, digest_of, prepared
from boolit.lab.tables.prepared import SPLITS
from boolit.saved.description import TableTask

Share = Annotated[float, Field(gt=0, lt=1)]


@register
class Table(Source):
    """A file and its target; see `boolit.lab.tables.Wanted`.

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
        return Dataset(splits, task, len(table.classes) if task == "classes" else 1, unit=table.target_scale)


def network_task(table: Prepared) -> Task:
    """What is asked of a network: of two classes, one logit."""
    if table.task == "regress":
        return "regression"
    return "binary" if len(table.classes) == 2 else "classes"


def _targets(values: Tensor, task: Task) -> Tensor:
    return values.long() if task == "classes" else values.float().unsqueeze(1)
