"""The predictions of a saved model for every row of a table, piece by piece."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa

from boolit.lab.errors import UserError, user_input
from boolit.lab.files import csv_cell
from boolit.lab.tables import open_table
from boolit.lab.tables.evidence import numbers, plain
from boolit.lab.tables.progress import Step, table_progress
from boolit.saved import load
from boolit.saved.columns import Kind
from boolit.saved.model import SavedModel


def write_predictions(model: Path, table: Path, to: Path | TextIO, shown: bool | None = None) -> int:
    """Writes CSV: the prediction and the probabilities of the classes; returns the number of rows.

    A label that a spreadsheet would take for a formula gets an apostrophe before it.
    A file is written whole or not at all. ``shown`` shows or hides the progress, which otherwise shows on a terminal.
    """
    with user_input():
        loaded = load(model)
    with table_progress(shown) as progress:
        step = progress.step("predicting")
        return _write_file(loaded, table, to, step) if isinstance(to, Path) else _write(loaded, table, to, step)


def _write_file(model: SavedModel, table: Path, to: Path, step: Step) -> int:
    unfinished = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            rows = _write(model, table, file, step)
        unfinished.replace(to)
    except OSError as error:
        raise UserError(f"cannot write {to} ({error.strerror or error}); choose a place you may write to") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _write(model: SavedModel, path: Path, file: TextIO, step: Step) -> int:
    table, rows = open_table(path), 0
    for name in model.columns:
        if name not in table.names:
            raise UserError(f"{path} has no column {name!r}; the model reads {', '.join(model.columns)}")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(model.description.target), *(f"P({label})" for label in model.classes)])
    for piece in table.pieces(model.columns):
        writer.writerows(_rows(model, piece))
        rows += piece.num_rows
        step(piece.num_rows)
    return rows


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
