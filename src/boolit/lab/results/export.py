"""Runs and their curves as CSV, JSON or Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, csv_cell

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "json", "parquet")


def export(frame: pd.DataFrame, path: Path, format: str) -> Path:  # noqa: A002
    """Write a frame to a file atomically and return its path.

    Args:
        frame: what `Store.frame` or `Store.curves` returned.
        path: the file to write.
        format: ``csv``, ``json`` (one object per row) or ``parquet``.
    """
    if format not in FORMATS:
        raise UserError(f"runs are exported as {', '.join(FORMATS)}, not {format!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            if format == "csv":
                texts = frame.select_dtypes(["object", "string", "category"]).columns
                frame.assign(**{name: frame[name].astype(object).map(csv_cell) for name in texts}).to_csv(part, index=False)
            elif format == "json":
                frame.to_json(part, orient="records", indent=1, double_precision=15)
            else:
                frame.to_parquet(part, index=False)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror or error}); choose a place you may write to") from error
    return path
