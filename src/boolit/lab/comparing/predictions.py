"""The predictions of a saved model for every row of a table, piece by piece."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boolit.lab.errors import UserError, user_input
from boolit.lab.files import csv_cell
from boolit.lab.tables import open_table
from boolit.lab.tables.evidence import numbers, plain
from boolit.lab.tables.progress import Step, table_progress
from boolit.saved import load
from boolit.saved.columns import Column, Kind
from boolit.saved.model import SavedModel
from boolit.saved.values import is_missing

SHOWN_TEXTS, TEXT_LENGTH = 5, 40  # of a column's unknown ones, to name a few


@dataclass
class Unknown:
    """Rows of a column whose text is no category that the model knows, and the first few of these texts."""

    rows: int = 0
    texts: list[str] = field(default_factory=list)
    more: bool = False

    def add(self, column: Column, values: pa.Array) -> None:
        """Looks through further rows."""
        counts = pc.value_counts(plain(values))
        for value, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
            text = str(value).strip()
            if is_missing(value) or text in column.levels:
                continue
            self.rows += count
            if text[:TEXT_LENGTH] not in self.texts:
                self.more |= len(self.texts) == SHOWN_TEXTS
                self.texts += [text[:TEXT_LENGTH]] * (not self.more)

    def note(self, name: str) -> str:
        """What a user is told."""
        rows = f"{self.rows} row{'s' if self.rows > 1 else ''}"
        texts = ", ".join(map(repr, self.texts)) + ", …" * self.more
        return f"column {name!r}: {rows} with a category that the model does not know, predicted all the same: {texts}"


@dataclass
class Predicted:
    """How many rows were predicted, and what of each column of categories the model does not know."""

    rows: int = 0
    unknown: dict[str, Unknown] = field(default_factory=dict)

    def add(self, columns: Sequence[Column], piece: pa.RecordBatch) -> None:
        """Looks through further rows."""
        self.rows += piece.num_rows
        for column, values in zip(columns, piece.columns, strict=True):
            if column.kind == "category":
                self.unknown.setdefault(column.name, Unknown()).add(column, values)

    def notes(self) -> list[str]:
        """A sentence for each column with such rows."""
        return [found.note(name) for name, found in self.unknown.items() if found.rows]


def write_predictions(model: Path, table: Path, to: Path | TextIO, shown: bool | None = None) -> Predicted:
    """Writes CSV: the prediction and the probabilities of the classes.

    A label that a spreadsheet would take for a formula gets an apostrophe before it. A file is written whole or not at all.
    ``shown`` may hide the progress.
    """
    with user_input():
        loaded = load(model)
    with table_progress(shown) as progress:
        step = progress.step("predicting")
        return _write_file(loaded, table, to, step) if isinstance(to, Path) else _write(loaded, table, to, step)


def _write_file(model: SavedModel, table: Path, to: Path, step: Step) -> Predicted:
    unfinished = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            predicted = _write(model, table, file, step)
        unfinished.replace(to)
    except OSError as error:
        raise UserError(f"cannot write {to} ({error.strerror or error}); choose a place you may write to") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return predicted


def _write(model: SavedModel, path: Path, file: TextIO, step: Step) -> Predicted:
    table, predicted = open_table(path), Predicted()
    for name in model.columns:
        if name not in table.names:
            raise UserError(f"{path} has no column {name!r}; the model reads {', '.join(model.columns)}")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(model.description.target), *(f"P({label})" for label in model.classes)])
    for piece in table.pieces(model.columns):
        writer.writerows(_rows(model, piece))
        predicted.add(model.description.columns, piece)
        step(piece.num_rows)
    return predicted


def _rows(model: SavedModel, piece: pa.RecordBatch) -> list[list[Any]]:
    wanted = model.description.columns
    columns = {column.name: _read(column.kind, own) for column, own in zip(wanted, piece.columns, strict=True)}
    with user_input():
        if not model.classes:
            return [[value] for value in model.predict(columns).tolist()]
        chances = model.predict_proba(columns)
    chosen = (model.classes[place] for place in np.argmax(chances, axis=1))
    return [[csv_cell(label), *own] for label, own in zip(chosen, chances.tolist(), strict=True)]


def _read(kind: Kind, column: pa.Array) -> pa.Array:
    """Numbers written as texts are read by pyarrow, much faster than the model would; categories stay texts."""
    column = plain(column)
    found = numbers(column) if kind in ("number", "flag") and pa.types.is_string(column.type) else None
    return column if found is None else found
