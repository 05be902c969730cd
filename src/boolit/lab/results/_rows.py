"""A record as rows of the store, each covered by a checksum, and back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from boolit.lab.results._encoding import digest, epochs_blob, epochs_from, mapping_text, metrics_from, metrics_text
from boolit.lab.runs import Record, canonical

Curves = dict[str, bytes]
COLUMNS = "key, config, state, metrics, json, seconds, recorded, curves, checksum"
_FROM = "runs LEFT JOIN environments ON environment = id"  # left, so that a run that lost its environment is noticed


class DamagedError(ValueError):
    """A record that is not as it was written."""


def insert(database: sqlite3.Connection, record: Record, recorded: str) -> bool:
    """Writes a record unless its key is there already; whether it did."""
    environment = mapping_text(record.environment)
    database.execute("INSERT OR IGNORE INTO environments (json) VALUES (?)", (environment,))
    curves = {metric: epochs_blob(values) for metric, values in record.history.items()}
    seconds, texts = float(record.seconds), (canonical(record.config), record.state, metrics_text(record.metrics))
    of_curves = curves_digest(curves)
    checksum = digest((record.key, *texts, environment, seconds, recorded, of_curves))
    written = database.execute(
        "INSERT OR IGNORE INTO runs SELECT ?, ?, ?, ?, id, ?, ?, ?, ? FROM environments WHERE json = ?",
        (record.key, *texts, seconds, recorded, of_curves, checksum, environment),
    ).rowcount
    if written:
        rows = [(record.key, metric, blob) for metric, blob in curves.items()]
        database.executemany("INSERT INTO history VALUES (?, ?, ?)", rows)
    return bool(written)


def select(database: sqlite3.Connection, history: bool) -> Iterator[tuple[tuple[Any, ...], Curves | None]]:
    """Every run's row with its curves, or without, one at a time; curves of no run are damage, too."""
    runs = database.execute(f"SELECT {COLUMNS} FROM {_FROM} ORDER BY key")
    if not history:
        yield from ((row, None) for row in runs)
        return
    rows = database.execute("SELECT key, metric, epochs FROM history ORDER BY key, metric")
    groups = groupby(rows, key=itemgetter(0))
    ahead = next(groups, None)
    for run in runs:
        curves: Curves = {}
        if ahead is not None and ahead[0] == run[0]:
            curves = {metric: blob for _, metric, blob in ahead[1]}
            ahead = next(groups, None)
        yield run, curves
    if ahead is not None:
        raise DamagedError(f"there are curves of run {ahead[0]!r}, which is not there")


def select_one(database: sqlite3.Connection, key: str) -> tuple[tuple[Any, ...], Curves] | None:
    """A run's row with its curves, if it is there."""
    row = database.execute(f"SELECT {COLUMNS} FROM {_FROM} WHERE key = ?", (key,)).fetchone()
    rows = database.execute("SELECT metric, epochs FROM history WHERE key = ?", (key,)).fetchall()
    return None if row is None else (row, dict(rows))


def record_of(row: tuple[Any, ...], curves: Curves | None) -> Record:
    """The record of a row, if it is as it was written."""
    check(row, curves)
    key, config, state, metrics, environment, seconds, *_ = row
    try:
        return Record(
            key=key,
            config=json.loads(config),
            state=state,
            metrics=metrics_from(metrics),
            history={metric: epochs_from(blob) for metric, blob in (curves or {}).items()},
            environment=json.loads(environment),
            seconds=seconds,
        )
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"run {key!r} cannot be read ({error})") from error


def check(row: tuple[Any, ...], curves: Curves | None) -> None:
    """Compares a row with its checksums."""
    *values, of_curves, checksum = row
    try:
        whole = digest((*values, of_curves)) == checksum and (curves is None or curves_digest(curves) == of_curves)
    except TypeError:  # an entry of a type that none of ours has
        whole = False
    if not whole:
        raise DamagedError(f"run {row[0]!r} is not as it was written (its checksum is another)")


def curves_digest(curves: Mapping[str, bytes]) -> bytes:
    """The checksum of all curves of a run."""
    return digest(part for pair in _sorted(curves.items()) for part in pair)


def _sorted(pairs: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    return sorted(pairs, key=lambda pair: str(pair[0]))
