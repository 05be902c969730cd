"""Migration of stores of version 1, which had no checksums and whose keys were hashes of whole configurations."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from boolit.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.models import family
from boolit.lab.results.rows import DamagedError, insert_record, load_metrics, unpack_curve
from boolit.lab.results.run_claims import Process, is_alive
from boolit.lab.runs import JSON, KEY_DIGITS, Record, RunConfig
from boolit.lab.training.recipe import Recipe

RUNS = "SELECT key, config, state, metrics, json, seconds, recorded FROM {} LEFT JOIN environments ON environment = id"
_OLD = ("runs", "history")


def migrate(database: sqlite3.Connection, folder: Path, create_tables: Callable[[sqlite3.Connection], None]) -> None:
    """Turns the tables of version 1 into ours, within the caller's transaction, and renames weights to today's keys.

    Old keys depended on more: the study, its metric, options at their defaults. Of runs that differed only in these, the
    first recorded is kept. Weights are renamed before the transaction ends; after a kill in between, the store is still of
    version 1 and the next opening renames the rest.
    """
    _refuse_while_in_use(database, folder)
    for table in _OLD:
        database.execute(f"ALTER TABLE {table} RENAME TO {table}_1")
    database.execute("ALTER TABLE environments RENAME TO environments_1")
    database.execute("DROP TABLE claims")
    create_tables(database)
    runs = RUNS.format("runs_1").replace("environments", "environments_1")
    for old, record, recorded in _read_runs(database, f"{runs} ORDER BY recorded, key", "history_1"):
        insert_record(database, record, recorded)
        weights, renamed = (folder / "weights" / f"{key}.safetensors" for key in (old, record.key))
        if weights.exists() and not renamed.exists():
            weights.replace(renamed)
    for table in (*_OLD, "environments"):
        database.execute(f"DROP TABLE {table}_1")


def _read_runs(database: sqlite3.Connection, query: str, history: str) -> Iterator[tuple[str, Record, str]]:
    """Every run of version 1: its old key, its record with today's key, and when it was recorded."""
    for row in database.execute(query).fetchall():
        curves = database.execute(f"SELECT metric, epochs FROM {history} WHERE key = ?", (row[0],)).fetchall()
        yield row[0], parse_record(row, dict(curves)), row[6]


def parse_record(row: tuple[Any, ...], curves: Mapping[str, bytes]) -> Record:
    """The record of a row of version 1, as far as that can be checked: it has no checksum."""
    key, config, state, metrics, environment, seconds, _ = row
    try:
        if hashlib.sha256(config.encode()).hexdigest()[:KEY_DIGITS] != key:
            raise ValueError("its key is not that of its configuration")
        plain = RunConfig.from_dict(drop_defaults(json.loads(config)))
        return Record(
            key=plain.key,
            config=plain,
            state=state,
            metrics=load_metrics(metrics),
            history={metric: unpack_curve(blob) for metric, blob in curves.items()},
            environment=json.loads(environment),
            seconds=seconds,
        )
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"run {key!r} cannot be read ({error})") from error


def drop_defaults(config: Mapping[str, JSON]) -> dict[str, JSON]:
    """A configuration without the options that are at their defaults; unknown ones stay as they are."""
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
        if is_alive(Process(host, pid, started), seconds_silent=time.time() - heartbeat):
            raise UserError(
                f"an older boolit is at work in {folder} (process {pid} on {host}); wait until it has ended, then run again"
            )
