"""The store: every finished run of an output folder, safe from kills and from other processes on the same folder."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np

from boolit.errors import UserError
from boolit.lab.results.database import FILE, explain_errors, open_database, transaction
from boolit.lab.results.rows import Curves, DamagedError, insert_record, select_row, select_rows, verify_row
from boolit.lab.results.run_claims import (
    HEARTBEAT_SECONDS,
    ClaimHolder,
    HeartbeatMonitor,
    claim,
    current_process,
    expire_claims,
    heartbeat,
    holders,
    release,
)
from boolit.lab.results.run_table import RunTable, StoredCurves
from boolit.lab.runs import JSON, Record, Run, RunConfig

__all__ = ["ClaimHolder", "Store"]

_SAFE_KEY = re.compile(r"[0-9A-Za-z_-]+")


class Store:
    """The finished runs of one output folder, in an SQLite file there.

    A record is in it whole or not at all, is never overwritten, and outlives the process that wrote it. Several processes
    of one host may use the folder at once: what one has claimed no other gets, until it is recorded or released, or its
    process has died. (SQLite's write-ahead log needs shared memory, so processes of several hosts must not share a folder
    over a network: there, one host keeps the store and the others send it their records.)

    Args:
        folder: the output folder, such as ``results/parity-quick``.
        create: whether it is made if it is not there; otherwise that is a `UserError`.
        patience: seconds to wait for another process that is writing.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Record, Run, Store
        >>> run = Run.from_dict({"activation": "relu", "seed": 1})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(Path(folder))  # or ``with Store(…) as store:``, which closes it
        ...     mine = store.claim([run.key], owner="me")
        ...     store.release(mine, owner="me")
        ...     assert store.claim([run.key], owner="me") == mine and store.holders()[0].runs == 1
        ...     store.record([Record(run.key, run.config, "finished", {"test_accuracy": 0.93})])
        ...     assert store.finished() == {run.key} and store.claim([run.key], owner="me") == []
        ...     [record] = store.records({"activation": "relu"})
        ...     assert store.records_of([run]) == [record]
        ...     assert list(store.table()) == list(store.table_of([run])) == [record] and not store.kept_weights()
        ...     places = store.checkpoint_folder("cohort").name, store.weights(run.key).suffix
        ...     store.close()
        >>> record.metrics, places
        ({'test_accuracy': 0.93}, ('cohort', '.safetensors'))
    """

    def __init__(self, folder: Path, create: bool = True, patience: float = 60.0) -> None:
        self.folder = Path(folder)
        self._create = create
        self._lock = threading.RLock()
        self._process, self._monitor = current_process(), HeartbeatMonitor()
        self._held: dict[str, str] = {}  # claimed by this store: key and owner
        self._closing = threading.Event()
        self._heartbeats: threading.Thread | None = None
        self._connection = open_database(self.folder, create, patience)
        self._file = _inode(self.folder / FILE)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Releases what this store still has claimed, and closes the connection."""
        self._closing.set()
        if self._heartbeats is not None:
            self._heartbeats.join()
        with self._lock:
            if self._held:
                with suppress(UserError), self._writing() as database:
                    release(database, self._held.items(), self._process)
                self._held.clear()
            self._connection.close()

    def finished(self, keys: Iterable[str] | None = None) -> set[str]:
        """The keys of all runs in the store, diverged ones too; or of those given that are."""
        with self._reading() as database:
            if keys is None:
                return {key for (key,) in database.execute("SELECT key FROM runs")}
            return {key for key in keys if database.execute("SELECT 1 FROM runs WHERE key = ?", (key,)).fetchone()}

    def claim(self, keys: Iterable[str], owner: str, again: Iterable[str] = ()) -> list[str]:
        """Claims those of ``keys`` that are neither in the store nor claimed by a living process, this one included.

        They are returned in order. A claim lasts until the run is recorded, it is released, or this store is closed.
        Runs of ``again`` may be in the store: they are trained for their weights, and their records stay.
        """
        repeated = set(again)
        with self._writing() as database:
            expire_claims(database, self._monitor)
            checked = map(_check_key, dict.fromkeys(keys))
            claimed = [key for key in checked if claim(database, key, owner, self._process, key in repeated)]
        self._held.update(dict.fromkeys(claimed, owner))
        self._start_heartbeats()
        return claimed

    def holders(self) -> list[ClaimHolder]:
        """The processes that work on runs of this folder."""
        with self._reading() as database:
            return holders(database)

    def release(self, keys: Iterable[str], owner: str) -> None:
        """Releases claims of ``owner`` in this process, for others to claim; those of anybody else stay."""
        keys = set(keys)
        with self._writing() as database:
            release(database, [(key, owner) for key in keys], self._process)
        for key in keys:
            if self._held.get(key) == owner:
                self._held.pop(key, None)

    def record(self, records: Iterable[Record]) -> None:
        """Adds records in one transaction and ends their claims; a run that is already in the store stays as it is."""
        records, recorded = list(records), datetime.now(timezone.utc).isoformat(timespec="seconds")
        for record in records:
            if record.key != record.config.key:
                raise ValueError(f"the key {record.key!r} is not that of its configuration ({record.config.key!r})")
        with self._writing() as database:
            for record in records:
                insert_record(database, record, recorded)
                database.execute("DELETE FROM claims WHERE key = ?", (record.key,))
        for record in records:
            self._held.pop(record.key, None)

    def records(self, where: Mapping[str, JSON] | None = None, history: bool = True) -> list[Record]:
        """The records whose configuration has the entries of ``where``, ordered by study, activation, size and seed.

        The order does not depend on who wrote first. ``history=False`` leaves the curves out and is faster.
        """
        return list(_select(self._read(history), where or {}))

    def table(self, where: Mapping[str, JSON] | None = None) -> RunTable:
        """The same runs as `records`, as columns, in a hundredth of the memory: for many of them.

        It is a sequence of records, too. The curves of a record are read when they are asked for, while the store is open.
        """
        return _select(self._read(history=False, later=True), where or {})

    def records_of(self, runs: Iterable[Run], history: bool = True) -> list[Record]:
        """The records of these runs, in the order of `records`, each with the configuration of its run here.

        A run that another study has trained is found as well, and counts as this study's.
        """
        return list(_select(self._read(history).with_configs({run.key: run.config for run in runs})))

    def table_of(self, runs: Iterable[Run]) -> RunTable:
        """The same runs as `records_of`, as columns; see `table`."""
        return _select(self._read(history=False, later=True).with_configs({run.key: run.config for run in runs}))

    def _read(self, history: bool, later: bool = False) -> RunTable:
        """Every run, with its curves, without, or with curves that are read later."""
        with self._reading() as database:
            rows = select_rows(database, history)
            return RunTable.of_rows(rows, (lambda key: StoredCurves(lambda: self._curves(key))) if later else None)

    def _curves(self, key: str) -> Curves:
        with self._reading() as database:
            found = select_row(database, key)
            if found is None:
                raise DamagedError(f"run {key!r} is no longer there")
            verify_row(*found)
            return found[1]

    def checkpoint_folder(self, cohort: str) -> Path:
        """Where a running cohort keeps its checkpoints; there if it has one."""
        return self._below("checkpoints", make=self._create) / _check_key(cohort)

    def weights(self, key: str) -> Path:
        """Where a run's final weights are, if they were kept."""
        return self._below("weights", make=self._create) / f"{_check_key(key)}.safetensors"

    def kept_weights(self) -> set[str]:
        """The keys of all runs whose final weights were kept."""
        return {path.stem for path in (self.folder / "weights").glob("*.safetensors")}

    def _below(self, *names: str, make: bool) -> Path:
        path = self.folder.joinpath(*map(_check_key, names))
        if make:
            path.mkdir(parents=True, exist_ok=True)
        return path

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("DEFERRED")

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("IMMEDIATE")

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._process.pid:
            raise RuntimeError("this store was opened before a fork; SQLite needs every process to open its own")
        with self._lock, explain_errors(self.folder / FILE), transaction(self._connection, kind):
            yield self._connection
            # Before the transaction ends: SQLite would go on writing to a file that nobody can find again.
            if _inode(self.folder / FILE) != self._file:
                raise UserError(
                    f"{self.folder / FILE} was deleted or replaced while this process used it, and its runs are gone with "
                    "it; put it back or run again"
                )

    def _start_heartbeats(self) -> None:
        if self._heartbeats is None:
            self._heartbeats = threading.Thread(target=self._send_heartbeats, name="store heartbeat", daemon=True)
            self._heartbeats.start()

    def _send_heartbeats(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            # A heartbeat that fails (a busy or full disk) is repeated by the next; training continues meanwhile.
            with suppress(UserError, sqlite3.Error), self._writing() as database:
                heartbeat(database, self._process)


def _inode(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _select(table: RunTable, where: Mapping[str, JSON] | None = None) -> RunTable:
    """The runs with these entries, ordered by study, activation, size and seed."""
    if where and "seed" in where:
        table = table.where(lambda config: "seed" in config.model_fields_set)
        table = table.take(np.array([seed == where["seed"] for seed in table.columns["seed"].tolist()], bool))
    others = {name: value for name, value in (where or {}).items() if name != "seed"}
    return table.where(lambda config: _matches(config.to_dict(), others)).sorted_by(_order)


def _matches(config: Mapping[str, JSON], where: Mapping[str, JSON]) -> bool:
    return all(name in config and config[name] == value for name, value in where.items())


def _order(config: RunConfig) -> tuple[str | float, ...]:
    budget = -1 if config.budget is None else config.budget
    return config.study, str(config.profile), config.activation, config.depth, budget, config.parameters


def _check_key(key: str) -> str:
    if not _SAFE_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key: letters, digits, - and _ only (it names a file)")
    return key
