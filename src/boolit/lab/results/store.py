"""The store: every finished run of an output folder, safe from kills and from other processes on the same folder."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Literal

from boolit.lab.common.errors import UserError
from boolit.lab.results.claims import PULSE, Holder, Watch, beat, bury, give_back, holders, take, this_process
from boolit.lab.results.database import FILE, explained, open_database, transaction
from boolit.lab.results.rows import insert, record_of, select
from boolit.lab.runs import JSON, Record, Run

__all__ = ["Holder", "Store"]

_SAFE_KEY = re.compile(r"[0-9A-Za-z_-]+")


class Store:
    """The finished runs of one output folder, in an SQLite file there.

    A record is in it whole or not at all, is never overwritten, and outlives the process that wrote it. Several processes
    of one host may use the folder at once: what one has claimed no other gets, until it is recorded or released, or its
    process has died. (SQLite's write-ahead log needs shared memory, so processes of several hosts must not share a folder
    over a network: there, one host keeps the store and the others send it their records.)

    Example:
        >>> import tempfile
        >>> from boolit.lab.runs import Run
        >>> run = Run.from_dict({"activation": "relu", "seed": 1})
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     mine = store.claim([run.key], owner="me")
        ...     store.record([Record(run.key, run.config, "finished", {"test_accuracy": 0.93})])
        ...     store.finished() == set(mine), store.claim([run.key], owner="me")
        (True, [])
    """

    def __init__(self, folder: Path, create: bool = True, patience: float = 60.0) -> None:
        self.folder = Path(folder)
        self._create = create
        self._lock = threading.RLock()
        self._process, self._watch = this_process(), Watch()
        self._held: dict[str, str] = {}  # claimed by this store: key and owner
        self._closing = threading.Event()
        self._pulse: threading.Thread | None = None
        self._connection = open_database(self.folder, create, patience)
        self._file = _file_number(self.folder / FILE)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what this store still has claimed, and ends the connection."""
        self._closing.set()
        if self._pulse is not None:
            self._pulse.join()
        with self._lock:
            if self._held:
                with suppress(UserError), self._writing() as database:
                    give_back(database, self._held.items(), self._process)
                self._held.clear()
            self._connection.close()

    def finished(self) -> set[str]:
        """The keys of all runs in the store, diverged ones too."""
        with self._reading() as database:
            return {key for (key,) in database.execute("SELECT key FROM runs")}

    def claim(self, keys: Iterable[str], owner: str, again: Iterable[str] = ()) -> list[str]:
        """Takes those of ``keys`` that are neither in the store nor claimed by a living process, this one included.

        They are returned in their order. A claim lasts until the run is recorded, it is released, or this store is closed.
        Runs of ``again`` may be in the store: they are trained for their weights, and their records stay.
        """
        anew = set(again)
        with self._writing() as database:
            bury(database, self._watch)
            wanted = map(_checked, dict.fromkeys(keys))
            taken = [key for key in wanted if take(database, key, owner, self._process, key in anew)]
        self._held.update(dict.fromkeys(taken, owner))
        self._start_pulse()
        return taken

    def holders(self) -> list[Holder]:
        """Which processes are at work on runs of this folder."""
        with self._reading() as database:
            return holders(database)

    def release(self, keys: Iterable[str], owner: str) -> None:
        """Gives back claims of ``owner`` in this process, for others to take; those of anybody else stay."""
        keys = list(keys)
        with self._writing() as database:
            give_back(database, [(key, owner) for key in keys], self._process)
        self._forget(key for key in keys if self._held.get(key) == owner)

    def record(self, records: Iterable[Record]) -> None:
        """Keeps records, all in one transaction, and ends their claims; a run that is already in the store stays as it is."""
        records, recorded = list(records), datetime.now(timezone.utc).isoformat(timespec="seconds")
        for record in records:
            if record.key != record.config.key:
                raise ValueError(f"the key {record.key!r} is not that of its configuration ({record.config.key!r})")
        with self._writing() as database:
            for record in records:
                insert(database, record, recorded)
                database.execute("DELETE FROM claims WHERE key = ?", (record.key,))
        self._forget(record.key for record in records)

    def records(self, where: Mapping[str, JSON] | None = None, history: bool = True) -> list[Record]:
        """The records whose configuration has the entries of ``where``, ordered by study, activation, size and seed.

        The order does not depend on who wrote first. ``history=False`` leaves the curves out and is faster.
        """
        with self._reading() as database:
            found = [record_of(row, curves) for row, curves in select(database, history)]
        return sorted((record for record in found if not where or _matches(record.config.to_dict(), where)), key=_order)

    def records_of(self, runs: Iterable[Run], history: bool = True) -> list[Record]:
        """The records of these runs, in the order of `records`, each with the configuration it is asked for by.

        A run that another study has trained is found, too, and is then this study's.
        """
        asked = {run.key: run.config for run in runs}
        found = [record for record in self.records(history=history) if record.key in asked]
        return sorted((replace(record, config=asked[record.key]) for record in found), key=_order)

    def checkpoint_folder(self, cohort: str) -> Path:
        """Where a running cohort keeps its checkpoints; made if it is not there."""
        return self._below("checkpoints", cohort, make=True)

    def weights(self, key: str) -> Path:
        """Where a run's final weights lie, if they were kept."""
        return self._below("weights", make=self._create) / f"{_checked(key)}.safetensors"

    def _below(self, *names: str, make: bool) -> Path:
        path = self.folder.joinpath(*map(_checked, names))
        if make:
            path.mkdir(parents=True, exist_ok=True)
        return path

    def _forget(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._held.pop(key, None)

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("DEFERRED")

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._transaction("IMMEDIATE")

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        if os.getpid() != self._process.pid:
            raise RuntimeError("this store was opened before a fork; SQLite needs every process to open its own")
        with self._lock, explained(self.folder / FILE), transaction(self._connection, kind):
            yield self._connection
            # Before the transaction ends: SQLite goes on writing to a file that nobody will find again.
            if _file_number(self.folder / FILE) != self._file:
                raise UserError(
                    f"{self.folder / FILE} was deleted or replaced while this process used it, and its runs are gone with "
                    "it; put it back or run again"
                )

    def _start_pulse(self) -> None:
        if self._pulse is None:
            self._pulse = threading.Thread(target=self._beat, name="store heartbeat", daemon=True)
            self._pulse.start()

    def _beat(self) -> None:
        while not self._closing.wait(PULSE):
            # A beat that fails (a busy or full disk) is made good by the next; training goes on meanwhile.
            with suppress(UserError, sqlite3.Error), self._writing() as database:
                beat(database, self._process)


def _file_number(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _matches(config: Mapping[str, JSON], where: Mapping[str, JSON]) -> bool:
    return all(name in config and config[name] == value for name, value in where.items())


def _order(record: Record) -> tuple[str | float, ...]:
    config = record.config
    budget = -1 if config.budget is None else config.budget
    names = (config.study, str(config.profile), config.activation)
    return (*names, config.depth, budget, config.parameters, config.seed, record.key)


def _checked(key: str) -> str:
    if not _SAFE_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key: letters, digits, - and _ only (it names a file)")
    return key
