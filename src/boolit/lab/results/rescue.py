"""Copies the intact runs of a damaged store to a new one."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from boolit.errors import UserError
from boolit.lab.results import migrations as version_1
from boolit.lab.results.database import FILE, table_columns
from boolit.lab.results.rows import DamagedError, parse_record, select_row
from boolit.lab.results.store import Store
from boolit.lab.runs import Record

BATCH_KEYS = 500


@dataclass(frozen=True)
class RescueResult:
    """How many runs were copied, the known keys of runs that could not be, and whether checksums were compared."""

    kept: int
    lost: tuple[str, ...]
    checked: bool
    folder: Path


def rescue(folder: Path, to: Path) -> RescueResult:
    """Copies every run that is as it was written, with its weights, to a new folder; the damaged store is only read.

    Keys are read from both ends of every table, so that one bad page hides few of them, and from the names of weight files.
    """
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no store ({FILE}); name a folder that `boolit run --out` has written to")
    if (to / FILE).exists():
        raise UserError(f"{to} holds a store already; name a new folder with --to")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return _copy_intact(database, folder, to)
    except (sqlite3.Error, MemoryError) as error:
        raise UserError(f"nothing can be rescued: {path} cannot be read ({error}); put a copy of it back") from error
    except OSError as error:
        raise UserError(
            f"cannot copy weights to {to} ({error.strerror or error}); make room, or name another folder"
        ) from error


def _copy_intact(database: sqlite3.Connection, folder: Path, to: Path) -> RescueResult:
    checked, read = _reader(database)
    # Migration may have renamed the weights of a version-1 store, so their names are no keys of it.
    weights = [path.stem for path in (folder / "weights").glob("*.safetensors")] if checked else []
    keys = sorted({*_keys(database), *weights})
    lost: list[str] = []
    with Store(to) as store:
        for start in range(0, len(keys), BATCH_KEYS):
            some = keys[start : start + BATCH_KEYS]
            found: dict[str, Record] = {}
            for key in some:
                with suppress(sqlite3.Error, MemoryError, DamagedError):
                    found[key] = read(key)
            lost += [key for key in some if key not in found]
            for key, record in found.items():
                file = folder / "weights" / f"{key}.safetensors"
                if file.is_file():
                    shutil.copyfile(file, store.weights(record.key))
            store.record(found.values())
        return RescueResult(len(store.finished()), tuple(lost), checked, to)


def _reader(database: sqlite3.Connection) -> tuple[bool, Callable[[str], Record]]:
    """Whether there are checksums, and how to read a run: by the columns, as the version in the header may be damaged."""
    columns = table_columns(database).get("runs", [])
    if "config" not in columns:
        raise UserError("nothing can be rescued: the table of runs is not there; put a copy of the store back")

    def read(key: str) -> Record:
        found = select_row(database, key)
        if found is None:
            raise DamagedError("not found")
        return parse_record(*found)

    def read_version_1(key: str) -> Record:
        row = database.execute(f"{version_1.RUNS.format('runs')} WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise DamagedError("not found")
        curves = database.execute("SELECT metric, epochs FROM history WHERE key = ?", (key,)).fetchall()
        return version_1.parse_record(row, dict(curves))

    return ("checksum" in columns), (read if "checksum" in columns else read_version_1)


def _keys(database: sqlite3.Connection) -> Iterator[str]:
    """Every key of any table, from its beginning and from its end until a page cannot be read."""
    for table in ("runs", "history"):
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.Error, MemoryError):
                for (key,) in database.execute(f"SELECT key FROM {table} ORDER BY key {order}"):
                    if isinstance(key, str):
                        yield key
