"""The store's runs as one table for other programs: CSV, Parquet or JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, csv_cell
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.store import Store
from boolit.lab.runs import Record

Row = dict[str, Any]
Write = Callable[[Path, Iterable[Row], Mapping[str, pa.DataType]], None]
ROWS_AT_ONCE = 50_000  # that are in memory: of a million runs, or of their epochs, not all can be

_CONFIGURED = {
    "study": pa.string(),
    "profile": pa.string(),
    "activation": pa.string(),
    "width": pa.list_(pa.int64()),
    "depth": pa.int64(),
    "parameters": pa.int64(),
    "budget": pa.int64(),
    "seed": pa.int64(),
}
_HISTORY_COLUMNS = {"key": pa.string(), "metric": pa.string(), "epoch": pa.int64(), "value": pa.float64()}


def export(store: Store, path: Path, format: str, history: bool = False) -> list[Path]:  # noqa: A002 (the command's own word)
    """Writes one row per run to ``path``, and with ``history`` a file beside it with every epoch; returns the files.

    An accuracy stays a fraction, a width of several layers is ``32-32`` in CSV and a list elsewhere, and JSON, which has no
    number for it, has null for what is not finite. A metric with the name of a configuration entry is left out.
    """
    if format not in _WRITERS:
        raise UserError(f"runs are exported as {', '.join(_WRITERS)}, not {format!r}")
    write, runs = _WRITERS[format], store.table()
    files = [path]
    _write_file(write, path, _rows(runs), _columns(runs))
    if history:
        files.append(path.with_name(f"{path.stem}.history{path.suffix}"))
        _write_file(write, files[1], _history_rows(runs), _HISTORY_COLUMNS)
    return files


def _columns(runs: RunTable) -> dict[str, pa.DataType]:
    named = {name for names in runs.names for name in names}
    named |= {"solved"} if any(config.metric and config.metric.solved is not None for config in runs.configs) else set()
    metrics = sorted(named - {"key", "state", "seconds", "device", *_CONFIGURED})
    return {
        "key": pa.string(),
        **_CONFIGURED,
        "state": pa.string(),
        **dict.fromkeys(metrics, pa.float64()),
        "seconds": pa.float64(),
        "device": pa.string(),
    }


def _rows(runs: RunTable) -> Iterator[Row]:
    for record in runs:
        yield {
            **record.metrics,
            **_solved(record),
            **{name: value for name, value in record.config.to_dict().items() if name in _CONFIGURED},
            "key": record.key,
            "state": record.state,
            "seconds": record.seconds,
            "device": record.environment.get("device"),  # which runs of an older boolit do not say
        }


def _solved(record: Record) -> dict[str, float]:
    """Whether the run solved its task, where its study says from which value on it has."""
    metric = record.config.metric
    if metric is None or metric.solved is None:
        return {}
    return {"solved": float(metric.solves(record.metrics.get(metric.key, math.nan)))}


def _history_rows(runs: RunTable) -> Iterator[Row]:
    return (
        {"key": record.key, "metric": metric, "epoch": epoch, "value": value}
        for record in runs
        for metric, values in sorted(record.history.items())
        for epoch, value in enumerate(values, start=1)
    )


def _write_csv(path: Path, rows: Iterable[Row], columns: Mapping[str, pa.DataType]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_csv_value(row.get(name)) for name in columns] for row in rows)


def _write_parquet(path: Path, rows: Iterable[Row], columns: Mapping[str, pa.DataType]) -> None:
    schema, remaining = pa.schema(list(columns.items())), iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        some = list(islice(remaining, ROWS_AT_ONCE))
        while some:
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
            some = list(islice(remaining, ROWS_AT_ONCE))


def _write_json(path: Path, rows: Iterable[Row], columns: Mapping[str, pa.DataType]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        separator, end = "\n ", "]\n"
        for row in rows:
            plain = {name: _json_value(row.get(name)) for name in columns}
            text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
            file.write(separator + text.replace("\n", "\n "))
            separator, end = ",\n ", "\n]\n"
        file.write(end)


_WRITERS: dict[str, Write] = {"csv": _write_csv, "parquet": _write_parquet, "json": _write_json}


def _write_file(write: Write, path: Path, rows: Iterable[Row], columns: Mapping[str, pa.DataType]) -> None:
    """Writes a file whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write(part, rows, columns)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror or error}); choose a place you may write to") from error


def _csv_value(value: Any) -> Any:
    return csv_cell("-".join(map(str, value)) if isinstance(value, (list, tuple)) else value)


def _json_value(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
