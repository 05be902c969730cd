"""The SQLite file below the store: opening it, its tables, its transactions, and its errors as sentences for users."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from boolit.errors import UserError
from boolit.lab.results.rows import DamagedError, select_rows, verify_row

FILE = "store.sqlite"
VERSION = 2
FULL_CHECK_BYTES = 2**24  # files up to this size are checked completely whenever they are opened
READ_AHEAD_BYTES = 2**28  # files from this size on are read in order first
APPLICATION_ID = 0x626F6F6C  # "bool": marks the SQLite file as ours

_TABLES = """
CREATE TABLE environments (id INTEGER PRIMARY KEY, json TEXT NOT NULL UNIQUE);
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    config TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('finished', 'diverged')),
    metrics TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments (id),
    seconds REAL NOT NULL,
    recorded TEXT NOT NULL,
    curves BLOB NOT NULL,
    checksum BLOB NOT NULL
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
    since REAL NOT NULL,
    beats INTEGER NOT NULL
) WITHOUT ROWID
"""

# SQLite's messages (Python 3.10 gives no error codes) and ours.
_SENTENCES = {
    "not a database": "is no store: it is not an SQLite file; choose another output folder",
    "locked": "has been kept busy by another process for too long; try again or end that process",
    "readonly": "cannot be written to; choose an output folder you may write to",
    "unable to open": "cannot be opened for writing; choose an output folder you may write to",
    "disk is full": "cannot grow because the disk is full; free some space and run again",
    "disk I/O": "cannot be read or written (disk error); choose an output folder on another disk",
}


def open_database(folder: Path, create: bool, patience: float) -> sqlite3.Connection:
    """A connection to a folder's store, which is created if it is not there and ``create`` allows it."""
    path = folder / FILE
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {folder} ({error.strerror}); choose one you may write to") from error
    elif not path.is_file():
        raise UserError(f"{folder} holds no store ({FILE}); name a folder that `boolit run --out` has written to")
    if path.is_file() and path.stat().st_size >= READ_AHEAD_BYTES:
        _read_ahead(path)
    with explain_errors(path):
        connection = sqlite3.connect(_uri(path, create), patience, isolation_level=None, check_same_thread=False, uri=True)
        try:
            _prepare(connection, path, create)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["DEFERRED", "IMMEDIATE"] = "IMMEDIATE") -> Iterator[None]:
    """One transaction: it reads one state of the store, and is written whole or not at all.

    An immediate one is the only writer from its beginning, so what it reads stays true until it has written.
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
def explain_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into a sentence that says what the user can do."""
    try:
        yield
    except sqlite3.ProgrammingError:  # ours, not the file's
        raise
    except (sqlite3.Error, MemoryError) as error:  # SQLite runs out of memory where a damaged length says so
        sentence = next((ours for theirs, ours in _SENTENCES.items() if theirs in str(error)), None)
        raise (UserError(f"{path} {sentence}") if sentence else damage_error(path, error)) from error
    except DamagedError as error:
        raise damage_error(path, error) from error


def damage_error(path: Path, reason: object) -> UserError:
    """The error for a damaged store."""
    return UserError(f"{path} is damaged: {reason}; `boolit rescue {path.parent}` copies the intact runs to a new folder")


def _read_ahead(path: Path) -> None:
    """Brings a file into the system's memory: SQLite reads pages in the order of keys, which takes a disk far longer.

    By a process of its own, since closing the file in this one would end the locks that SQLite has on it.
    """
    code = "import sys\nwith open(sys.argv[1], 'rb', 0) as file:\n    while file.read(1 << 24): pass"
    subprocess.run([sys.executable, "-S", "-c", code, str(path)], check=False, stderr=subprocess.DEVNULL)


def _uri(path: Path, create: bool) -> str:
    address = path.absolute().as_uri()
    # A store that was closed cleanly can still be read where we may not write, and so cannot make a -shm file.
    frozen = not create and not os.access(path.parent, os.W_OK) and not path.with_name(f"{FILE}-wal").exists()
    return f"{address}?mode=ro&immutable=1" if frozen else address


def _prepare(connection: sqlite3.Connection, path: Path, create: bool) -> None:
    with transaction(connection, "DEFERRED"):  # one state of the file, which another process may be creating
        version = _version(connection, path)
    if version == 0 and not create:
        raise DamagedError("it is empty")
    if version == 0:
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection):
            if _version(connection, path) == 0:
                create_tables(connection)
    elif version == 1:
        with transaction(connection):
            if _version(connection, path) == 1:
                verify_pages(connection, path)
                from boolit.lab.results.migrations import migrate  # it needs datasets and models, which others need not import

                migrate(connection, path.parent, create_tables)
    # A transaction is on the disk when it returns, not only in the system's cache; there are few of them.
    connection.execute("PRAGMA synchronous = FULL")
    with transaction(connection, "DEFERRED"):
        verify_tables(connection)
        verify_pages(connection, path)
        if path.stat().st_size <= FULL_CHECK_BYTES:
            for row, curves in select_rows(connection, history=True):
                verify_row(row, curves)


def verify_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Lets SQLite check the file: completely, or only its pages' structure if it is large."""
    pragma = "integrity_check" if path.stat().st_size <= FULL_CHECK_BYTES else "quick_check"
    found = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    if found != ("ok",):
        raise DamagedError(" ".join(str(found[0] if found else "no answer").replace("*** in database main ***", "").split()))


def verify_tables(connection: sqlite3.Connection) -> None:
    """Raises `DamagedError` if tables and columns are not those of a store."""
    with closing(sqlite3.connect(":memory:")) as blank:
        create_tables(blank)
        ours = table_columns(blank)
    found = table_columns(connection)
    for table, names in ours.items():
        missing = [name for name in names if name not in found.get(table, [])]
        if missing:
            raise DamagedError(f"its table {table} lacks {', '.join(missing)}")
    if found != ours:
        raise DamagedError("its tables are not those of a store")


def table_columns(connection: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of every table."""
    named = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1, c.cid"
    found: dict[str, list[str]] = {}
    for table, column in connection.execute(named):
        found.setdefault(table, []).append(column)
    return found


def create_tables(connection: sqlite3.Connection) -> None:
    """Creates the tables of an empty store."""
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file's tables, 0 if it has none; an error if they are not ours or too new."""
    queries = ("PRAGMA user_version", "SELECT count(*) FROM sqlite_master", "PRAGMA application_id")
    version, tables, application = (int(connection.execute(query).fetchone()[0]) for query in queries)
    ours = application == APPLICATION_ID
    if tables and not ours:
        raise UserError(f"{path} is another program's SQLite file; choose another output folder")
    if version > VERSION and ours:
        raise UserError(f"{path} was written by a newer boolit (store version {version}, ours is {VERSION}); upgrade boolit")
    if tables and version < 1:
        raise DamagedError(f"its version is {version}")
    return version if ours else 0
