"""The store: the runs of one results folder, in an SQLite file.

A result is written in one transaction, so a kill at any moment loses no finished run. One process writes to a folder at a time,
under an operating-system lock that a kill releases; any number of processes may read meanwhile.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, csv_cell
from boolit.lab.runs import Result, RunConfig, canonical

Row: TypeAlias = tuple[Any, ...]

FILE, LOCK, PROGRESS = "runs.sqlite", ".lock", "progress.json"
FORMATS = ("csv", "json", "parquet")  # of exports
VERSION = 3
FULL_CHECK_BYTES = 2**24  # SQLite files up to this size are checked as a whole when they are opened
SECONDS_TO_WAIT = 60.0  # for a reader or writer that holds the database for a moment

_TABLES = """
CREATE TABLE configs (id INTEGER PRIMARY KEY, json TEXT NOT NULL UNIQUE);
CREATE TABLE environments (id INTEGER PRIMARY KEY, json TEXT NOT NULL UNIQUE);
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    config INTEGER NOT NULL REFERENCES configs (id),
    seed INTEGER NOT NULL,
    split INTEGER,
    state TEXT NOT NULL CHECK (state IN ('finished', 'diverged')),
    metrics TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments (id),
    seconds REAL NOT NULL,
    recorded TEXT NOT NULL,
    curves BLOB NOT NULL,
    checksum BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE curves (key TEXT NOT NULL REFERENCES runs (key), metric TEXT NOT NULL, epochs BLOB NOT NULL,
    PRIMARY KEY (key, metric)) WITHOUT ROWID;
"""
_COLUMNS = ["key", "config", "seed", "split", "state", "metrics", "environment", "seconds", "recorded", "curves", "checksum"]
_NUMBER = {name: f"(SELECT id FROM {name}s WHERE json = ?)" for name in ("config", "environment")}
_INSERT = f"INSERT OR IGNORE INTO runs VALUES ({', '.join(_NUMBER.get(name, '?') for name in _COLUMNS)})"
_ERRORS = {  # parts of SQLite's messages, and what the user can do
    "not a database": "is not an SQLite file; choose another folder",
    "locked": "has been busy for too long; try again, or end the process that uses it",
    "readonly": "cannot be written to; choose a folder you may write to",
    "unable to open": "cannot be opened; choose a folder you may read and write",
    "disk is full": "cannot grow because the disk is full; free some space and run again",
    "disk I/O": "cannot be read or written (disk error); choose a folder on another disk",
}


class Store:
    """The runs of one results folder.

    Reading never locks. Writing needs `writing`, which only one process at a time can hold.

    Args:
        folder: the results folder, such as ``results/parity-quick``.

    Example:
        >>> frame = Store("results/parity-quick").frame()  # doctest: +SKIP
        >>> frame.groupby("activation")["test_accuracy"].mean()  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder, self.path = Path(folder), Path(folder) / FILE
        self._thread = threading.RLock()
        self._lock = FileLock(self.folder / LOCK, timeout=0.5)  # `in_use` of a reader holds it for a moment
        self._opened: sqlite3.Connection | None = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. The store opens it again when it is next used."""
        with self._thread:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the right to write to the folder, creating it if necessary.

        Raises:
            UserError: if another process holds it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = self._lock.acquire()
        except Timeout:
            raise UserError(f"{self.folder} is in use by another process; --workers N trains in parallel") from None
        except OSError as error:
            raise UserError(f"cannot write to {self.folder} ({error.strerror}); choose a folder you may write to") from error
        with held:
            if not self.path.exists():
                self.close()
            with self._errors():
                self._database(create=True)
            yield

    def in_use(self) -> bool:
        """Return whether a process holds the write lock of the folder."""
        try:
            with FileLock(self.folder / LOCK, timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # a folder that only others may write to
            return False

    def last_recorded(self) -> datetime | None:
        """Return the time of the last result."""
        if not self.path.is_file():
            return None
        with self._reading() as database:
            text = database.execute("SELECT max(recorded) FROM runs").fetchone()[0]
        return None if text is None else datetime.fromisoformat(text)

    def finished(self, keys: Iterable[str] | None = None) -> set[str]:
        """Return the keys of recorded runs, diverged ones included: all of them, or those among ``keys``."""
        with self._reading() as database:
            return {row[0] for row in _select(database, "SELECT key FROM runs", keys)}

    def record(self, results: Iterable[Result]) -> None:
        """Write results in one transaction. A run that is already recorded stays as it is."""
        results, recorded = list(results), datetime.now(timezone.utc).isoformat(timespec="seconds")
        with self.writing(), self._errors(), self._database() as database:  # commits, or rolls back after an error
            database.execute("BEGIN IMMEDIATE")
            for result in results:
                _insert(database, result, recorded)

    def results(self, keys: Iterable[str] | None = None, history: bool = True) -> list[Result]:
        """Return results with their typed configurations, ordered like `frame`.

        Args:
            keys: the runs to return; all by default.
            history: whether to read the values of every epoch.
        """
        with self._reading() as database:
            rows, texts = _read(database, keys)
            curves = _read_curves(database, rows) if history else {}
        configs = {number: RunConfig.model_validate_json(text) for number, text in texts["configs"].items()}
        environments = {number: json.loads(text) for number, text in texts["environments"].items()}
        results = {}
        for key, config, seed, split, state, metrics, environment, seconds, *_ in rows:
            typed = configs[config].replace(seed=seed, split=split)
            epochs = {metric: values.tolist() for metric, values in curves.get(key, {}).items()}
            results[key] = Result(typed, state, json.loads(metrics), epochs, seconds, environments[environment])
        return [results[key] for key in _frame(rows, texts["configs"])["key"]]

    def frame(self, keys: Iterable[str] | None = None) -> pd.DataFrame:
        """Return one row per run: labels, sizes, seed, state and seconds, then one column per metric.

        ``settings`` is a hash of the configuration without seed, split, activation and size. Runs are ordered by study,
        activation, depth, size, split and seed.
        """
        with self._reading() as database:
            rows, texts = _read(database, keys)
        return _frame(rows, texts["configs"])

    def curves(self, keys: Iterable[str] | None = None) -> pd.DataFrame:
        """Return the value of every metric after every epoch: columns ``key``, ``metric``, ``epoch`` and ``value``."""
        with self._reading() as database:
            rows, _ = _read(database, keys)
            curves = _read_curves(database, rows)
        parts = {(key, metric): values for key, metrics in curves.items() for metric, values in metrics.items()}
        frame = pd.DataFrame(list(parts), columns=["key", "metric"], dtype="category")
        frame = frame.loc[np.repeat(frame.index, [len(values) for values in parts.values()])]
        epoch = frame.groupby(level=0).cumcount() + 1
        return frame.assign(epoch=epoch, value=np.concatenate([*parts.values(), []])).reset_index(drop=True)

    def environments(self) -> list[Mapping[str, Any]]:
        """Return the environments that runs were trained in: versions, device and threads."""
        with self._reading() as database:
            return [json.loads(text) for (text,) in database.execute("SELECT json FROM environments ORDER BY id")]

    def weights(self, key: str) -> Path:
        """Return the path of a run's final weights; the file exists if the study keeps them."""
        return self.folder / "weights" / f"{key}.safetensors"

    def _database(self, create: bool = False) -> sqlite3.Connection:
        with self._thread:
            if self._opened is None:
                self._opened = _connect(self.path, create)
            return self._opened

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._thread, self._errors():
            database = self._database()
            database.execute("BEGIN")  # one state of the store for all queries
            try:
                yield database
            finally:
                database.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into one line that says what the user can do."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except (sqlite3.Error, zlib.error, MemoryError, OverflowError) as error:  # a damaged length may ask for any memory
            damage = f"is damaged: {error}; restore a copy, or delete it and train again"
            raise UserError(f"{self.path} {next((_ERRORS[part] for part in _ERRORS if part in str(error)), damage)}") from error


def _connect(path: Path, create: bool) -> sqlite3.Connection:
    if not create and not path.is_file():
        raise UserError(f"{path.parent} has no runs ({FILE}); give a folder that `boolit run` has written to")
    address = path.absolute().as_uri()
    if not os.access(path.parent, os.W_OK) and not path.with_name(f"{FILE}-wal").exists():
        address += "?mode=ro&immutable=1"  # SQLite would create a file for the readers of its log
    database = sqlite3.connect(address, SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False, uri=True)
    try:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")  # damaged text fails its checksum
        _prepare(database, path, create)
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: sqlite3.Connection, path: Path, create: bool) -> None:
    queries = ("PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    version, tables = (database.execute(query).fetchone()[0] for query in queries)
    if tables == 0 and create:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};COMMIT;")
        return
    if tables == 0:
        raise UserError(f"{path} has no runs yet")
    if version != VERSION:
        raise UserError(f"{path} was written by another program or version (store {version}, not {VERSION}); use a new folder")
    if path.stat().st_size <= FULL_CHECK_BYTES:
        problem = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise sqlite3.DatabaseError(" ".join(str(problem).split()))
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"runs", "configs", "environments", "curves"} <= names:
        raise sqlite3.DatabaseError("tables are missing")


def _select(database: sqlite3.Connection, query: str, keys: Iterable[str] | None) -> list[Row]:
    """Return the rows of a query, restricted to keys if given."""
    if keys is None:
        return database.execute(query).fetchall()
    return database.execute(f"{query} WHERE key IN (SELECT value FROM json_each(?))", [json.dumps(list(keys))]).fetchall()


def _read(database: sqlite3.Connection, keys: Iterable[str] | None) -> tuple[list[Row], dict[str, dict[int, str]]]:
    """Return runs as rows of `_COLUMNS`, and the texts of the configurations and environments they refer to by number."""
    rows = _select(database, f"SELECT {', '.join(_COLUMNS)} FROM runs", keys)
    texts: dict[str, dict[int, str]] = {}
    for table, used in (("configs", {row[1] for row in rows}), ("environments", {row[6] for row in rows})):
        texts[table] = {number: text for number, text in database.execute(f"SELECT id, json FROM {table}") if number in used}
    configs, environments = ({number: _checksum([text]) for number, text in part.items()} for part in texts.values())
    for key, config, seed, split, state, metrics, environment, *others, checksum in rows:
        values = (key, configs.get(config), seed, split, state, metrics, environments.get(environment), *others)
        if _checksum(values) != checksum:
            raise sqlite3.DatabaseError(f"run {key!r} does not match its checksum")
    return rows, texts


def _read_curves(database: sqlite3.Connection, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    blobs: dict[str, dict[str, bytes]] = {row[0]: {} for row in rows}
    for key, metric, blob in _select(database, "SELECT key, metric, epochs FROM curves", blobs):
        blobs[key][metric] = blob
    for key, *_, checksum, _ in rows:
        if _checksum(part for pair in sorted(blobs[key].items()) for part in pair) != checksum:
            raise sqlite3.DatabaseError(f"the curves of run {key!r} do not match their checksum")
    return {
        key: {metric: np.frombuffer(zlib.decompress(blob), "<f8") for metric, blob in packed.items()}
        for key, packed in blobs.items()
    }


def _frame(rows: Sequence[Row], configs: Mapping[int, str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=_COLUMNS).astype({"seed": "int64", "split": "Int64", "seconds": float})
    labels = pd.DataFrame([_labels(json.loads(text)) for text in configs.values()], [*configs], columns=list(_LABELS))
    labels = labels.astype({"trial": bool, "size": int, "parameters": int, "depth": int, "learning_rate": float})
    labels["budget"] = labels["budget"].astype("Int64")
    frame = table.join(labels, "config")[["key", *_LABELS[:-1], "seed", "split", "settings", "state", "seconds"]]
    metrics = pd.DataFrame.from_records([json.loads(text) for text in table["metrics"]]).astype(float)
    frame = pd.concat([frame, metrics.drop(columns=[name for name in metrics if name in frame])], axis=1)
    order = ["study", "profile", "activation", "depth", "size", "stage", "split", "seed", "key"]
    return frame.sort_values(order, ignore_index=True)


def _insert(database: sqlite3.Connection, result: Result, recorded: str) -> None:
    curves = {name: zlib.compress(np.asarray(values, "<f8").tobytes()) for name, values in result.history.items()}
    metrics = json.dumps({name: float(value) for name, value in result.metrics.items()})
    texts = {
        "configs": canonical(result.config.model_dump(mode="json", exclude={"seed", "split"})),
        "environments": canonical(dict(result.environment)),
    }
    for table, text in texts.items():
        database.execute(f"INSERT OR IGNORE INTO {table} (json) VALUES (?)", (text,))
    first = (result.config.seed, result.config.split, result.state, metrics)
    last = (float(result.seconds), recorded, _checksum(part for pair in sorted(curves.items()) for part in pair))
    config, environment = (_checksum([text]) for text in texts.values())
    checksum = _checksum((result.key, config, *first, environment, *last))
    row = (result.key, texts["configs"], *first, texts["environments"], *last, checksum)
    if database.execute(_INSERT, row).rowcount:
        database.executemany("INSERT INTO curves VALUES (?, ?, ?)", [(result.key, *pair) for pair in curves.items()])


def _checksum(values: Iterable[Any]) -> bytes:
    """Return a checksum of values and their types."""
    return hashlib.blake2b(repr(tuple(values)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


_LABELS = (
    *("study", "profile", "stage", "trial", "data", "model", "activation", "size", "parameters", "budget", "depth"),
    *("widths", "learning_rate", "settings"),
)
_SETTINGS = ("data", "model", "training", "inputs", "outputs", "trial", "arithmetic")


def _labels(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the frame that follow from a configuration."""
    settings = canonical({name: config[name] for name in _SETTINGS})
    rate = config["training"].get("learning_rate")
    return {name: config[name] for name in ("study", "profile", "stage", "trial", "activation", "parameters", "budget")} | {
        "data": config["data"]["name"],
        "model": config["model"]["name"],
        "size": config["parameters"] if config["budget"] is None else config["budget"],
        "depth": len(config["widths"]),
        "widths": "-".join(map(str, config["widths"])),
        "learning_rate": rate if isinstance(rate, float) else np.nan,
        "settings": hashlib.sha256(settings.encode()).hexdigest()[:8],
    }


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV in which no text is a formula of a spreadsheet."""
    texts = frame.select_dtypes(["object", "string", "category"]).columns
    cells = {name: frame[name].astype(object).map(csv_cell) for name in texts}
    return str(frame.assign(**cells).to_csv(index=False, lineterminator="\n"))


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
                part.write_text(csv_text(frame), encoding="utf-8", newline="\n")
            elif format == "json":
                frame.to_json(part, orient="records", indent=1, double_precision=15)
            else:
                frame.to_parquet(part, index=False)
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror or error}); choose a place you may write to") from error
    return path
