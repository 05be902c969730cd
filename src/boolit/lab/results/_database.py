"""The SQLite file below the store: opening it, its tables, its transactions, and its errors in plain words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from boolit.lab.errors import UserError

FILE = "store.sqlite"
VERSION = 1
APPLICATION = 0x626F6F6C  # "bool": tells our files from other programs' SQLite files

_TABLES = """
CREATE TABLE environments (id INTEGER PRIMARY KEY, json TEXT NOT NULL UNIQUE);
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    config TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('finished', 'diverged')),
    metrics TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments (id),
    seconds REAL NOT NULL,
    recorded TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE history (
    key TEXT NOT NULL REFERENCES runs (key),
    metric TEXT NOT NULL,
    epochs BLOB NOT NULL,
    PRIMARY KEY (key, metric)
) WITHOUT ROWID;
CREATE TABLE claims (
    key TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started TEXT NOT NULL,
    heartbeat REAL NOT NULL
) WITHOUT ROWID
"""

# SQLite's words (Python 3.10 gives no error codes) and ours.
_SENTENCES = {
    "not a database": "is no store: it is not an SQLite file; choose another output folder",
    "malformed": "is damaged; put a copy of it back or choose another output folder",
    "locked": "has been kept busy by another process for too long; try again or end that process",
    "readonly": "cannot be written to; choose an output folder you may write to",
    "unable to open": "cannot be opened for writing; choose an output folder you may write to",
    "disk is full": "cannot grow because the disk is full; free some space and run again",
    "disk I/O": "cannot be read or written (disk error); choose an output folder on another disk",
}


def open_database(folder: Path, create: bool, patience: float) -> sqlite3.Connection:
    """A connection to a folder's store, made if need be and allowed."""
    path = folder / FILE
    if create:
        _make(folder)
    elif not path.is_file():
        raise UserError(f"{folder} holds no store ({FILE}); name a folder that `boolit run --out` has written to")
    with explained(path):
        connection = sqlite3.connect(_address(path, create), patience, isolation_level=None, check_same_thread=False, uri=True)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["DEFERRED", "IMMEDIATE"] = "IMMEDIATE") -> Iterator[None]:
    """One transaction: it reads one state of the store, and is written whole or not at all.

    An immediate one has the only pen from its beginning, so that what it reads stays true until it has written.
    """
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns SQLite's errors that a user can do something about into a sentence that says what."""
    try:
        yield
    except sqlite3.Error as error:
        sentence = next((ours for theirs, ours in _SENTENCES.items() if theirs in str(error)), None)
        if sentence is None:
            raise
        raise UserError(f"{path} {sentence}") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}); choose one you may write to") from error


def _address(path: Path, create: bool) -> str:
    address = path.absolute().as_uri()
    # A store that was closed cleanly and lies where we may not write (no -shm file can be made) can still be read.
    frozen = not create and not os.access(path.parent, os.W_OK) and not path.with_name(f"{FILE}-wal").exists()
    return f"{address}?mode=ro&immutable=1" if frozen else address


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) == 0:
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection):
            if _version(connection, path) == 0:
                _make_tables(connection)
    # A transaction is on the disk when it returns, not only in the system's cache; there are few of them.
    connection.execute("PRAGMA synchronous = FULL")


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file's tables, 0 if it has none; an error if they are not ours or too new for us."""
    version, tables = (_single(connection, query) for query in ("PRAGMA user_version", "SELECT count(*) FROM sqlite_master"))
    ours = _single(connection, "PRAGMA application_id") == APPLICATION
    if tables and not ours:
        raise UserError(f"{path} is another program's SQLite file; choose another output folder")
    if version > VERSION and ours:
        raise UserError(f"{path} was written by a newer boolit (store version {version}, ours is {VERSION}); upgrade boolit")
    return version if ours else 0


def _single(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
