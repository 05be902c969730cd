"""Stores of version 1, which had no checksums and whose keys were of whole configurations, brought forward."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from boolit.lab.common.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.models import family
from boolit.lab.results.claims import Process, lives
from boolit.lab.results.rows import DamagedError, epochs_from, insert, metrics_from
from boolit.lab.runs import JSON, KEY_DIGITS, Record, RunConfig
from boolit.lab.training.recipe import Recipe

RUNS = "SELECT key, config, state, metrics, json, seconds, recorded FROM {} LEFT JOIN environments ON environment = id"
_OLD = ("runs", "history")


def bring_forward(database: sqlite3.Connection, folder: Path, make_tables: Callable[[sqlite3.Connection], None]) -> None:
    """Turns the tables of version 1 into ours, within the caller's transaction, and gives weights the names of today's keys.

    Keys said more then: the study, its metric, options at their defaults. Of runs that only differed in these the first
    recorded is kept. Weights are renamed before the transaction ends; a kill in between leaves a store of version 1 whose
    next opening renames the rest.
    """
    _refuse_while_in_use(database, folder)
    for table in _OLD:
        database.execute(f"ALTER TABLE {table} RENAME TO {table}_1")
    database.execute("ALTER TABLE environments RENAME TO environments_1")
    database.execute("DROP TABLE claims")
    make_tables(database)
    runs = RUNS.format("runs_1").replace("environments", "environments_1")
    for old, record, recorded in read(database, f"{runs} ORDER BY recorded, key", "history_1"):
        insert(database, record, recorded)
        weights, renamed = (folder / "weights" / f"{key}.safetensors" for key in (old, record.key))
        if weights.exists() and not renamed.exists():
            weights.replace(renamed)
    for table in (*_OLD, "environments"):
        database.execute(f"DROP TABLE {table}_1")


def read(database: sqlite3.Connection, query: str, history: str) -> Iterator[tuple[str, Record, str]]:
    """Every run of version 1: its key then, its record with today's key, and when it was recorded."""
    for row in database.execute(query).fetchall():
        curves = database.execute(f"SELECT metric, epochs FROM {history} WHERE key = ?", (row[0],)).fetchall()
        yield row[0], record_of(row, dict(curves)), row[6]


def record_of(row: tuple[Any, ...], curves: Mapping[str, bytes]) -> Record:
    """The record of a row of version 1, as far as that can be checked: it has no checksum."""
    key, config, state, metrics, environment, seconds, _ = row
    try:
        if hashlib.sha256(config.encode()).hexdigest()[:KEY_DIGITS] != key:
            raise ValueError("its key is not that of its configuration")
        plain = RunConfig.from_dict(shortened(json.loads(config)))
        return Record(
            key=plain.key,
            config=plain,
            state=state,
            metrics=metrics_from(metrics),
            history={metric: epochs_from(blob) for metric, blob in curves.items()},
            environment=json.loads(environment),
            seconds=seconds,
        )
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"run {key!r} cannot be read ({error})") from error


def shortened(config: Mapping[str, JSON]) -> dict[str, JSON]:
    """A configuration without the options that are at their defaults; what nobody here knows stays as it is."""
    readers: dict[str, Callable[[Any], Any]] = {"data": source, "model": family, "training": Recipe.model_validate}
    short = dict(config)
    for name, reader in readers.items():
        try:
            short[name] = RunConfig.options(reader(config[name]))
        except (KeyError, TypeError, ValueError, OSError):
            continue
    return short


def _refuse_while_in_use(database: sqlite3.Connection, folder: Path) -> None:
    holders = database.execute("SELECT host, pid, started, max(heartbeat) FROM claims GROUP BY host, pid, started").fetchall()
    for host, pid, started, heartbeat in holders:
        if lives(Process(host, pid, started), silence=time.time() - heartbeat):
            raise UserError(
                f"an older boolit is at work in {folder} (process {pid} on {host}); wait until it has ended, then run again"
            )
