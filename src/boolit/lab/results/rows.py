"""A record as rows of the store, each covered by a checksum, and back."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from boolit.lab.runs import Record, RunConfig, canonical

MAX_EPOCHS = 2**23  # of a curve; a longer blob is damaged
CHECKSUM_BYTES = 16
_head = struct.Struct("<cQ").pack  # of a part of a checksum: its type and its length
_decode = json.JSONDecoder().raw_decode  # what `json.loads` does around it costs as much again, a million times


def dump_metrics(metrics: Mapping[str, float]) -> str:
    """Metrics as JSON that any reader accepts: what is not finite is a string, as JSON has no number for it.

    Example:
        >>> dump_metrics({"loss": float("nan"), "accuracy": 0.5})
        '{"accuracy":0.5,"loss":"nan"}'
    """
    plain = {name: float(value) if math.isfinite(value) else str(float(value)) for name, value in metrics.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def load_metrics(text: str) -> dict[str, float]:
    """The metrics of a text by `dump_metrics`, bitwise the same."""
    found, end = _decode(text)
    if end != len(text):
        raise ValueError("metrics are followed by something else")
    return {name: float(value) for name, value in found.items()}


def pack_curve(values: Sequence[float]) -> bytes:
    """A curve as compressed little-endian doubles: a third of JSON's size, and exact."""
    return zlib.compress(struct.pack(f"<{len(values)}d", *values))


def unpack_curve(blob: bytes) -> list[float]:
    """The curve of a blob by `pack_curve`, bitwise the same.

    Example:
        >>> unpack_curve(pack_curve([0.1, float("inf")]))
        [0.1, inf]
    """
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(blob, 8 * MAX_EPOCHS)
    except zlib.error as error:
        raise ValueError(f"a curve cannot be unpacked ({error})") from error
    if not unpacking.eof or unpacking.unused_data or len(raw) % 8:
        raise ValueError(f"a curve is cut short, longer than {MAX_EPOCHS} epochs, or followed by something else")
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


def checksum_of(parts: Iterable[str | bytes | float]) -> bytes:
    """The checksum of values as SQLite returns them; other values, lengths or types have another one.

    Example:
        >>> checksum_of(["ab", "c"]) == checksum_of(["a", "bc"]), checksum_of(["1"]) == checksum_of([b"1"])
        (False, False)
    """
    pieces: list[bytes] = []
    for part in parts:
        if isinstance(part, str):
            raw = part.encode() if part.isascii() else part.encode("utf-8", "surrogatepass")
            pieces += (_head(b"s", len(raw)), raw)
        elif isinstance(part, bytes):
            pieces += (_head(b"b", len(part)), part)
        elif isinstance(part, float):
            pieces.append(struct.pack("<cQd", b"d", 8, part))
        else:
            raise TypeError(f"no record holds {part!r}")
    return hashlib.blake2b(b"".join(pieces), digest_size=CHECKSUM_BYTES).digest()


Curves = dict[str, bytes]
COLUMNS = "key, config, state, metrics, json, seconds, recorded, curves, checksum"
_TABLES = "runs LEFT JOIN environments ON environment = id"  # left, so that a run that lost its environment is noticed


class DamagedError(ValueError):
    """A part of a store that is not as it was written."""


def insert_record(database: sqlite3.Connection, record: Record, recorded: str) -> bool:
    """Writes a record unless its key is there already; whether it did."""
    environment = json.dumps(record.environment, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    database.execute("INSERT OR IGNORE INTO environments (json) VALUES (?)", (environment,))
    curves = {metric: pack_curve(values) for metric, values in record.history.items()}
    seconds, texts = float(record.seconds), (canonical(record.config.to_dict()), record.state, dump_metrics(record.metrics))
    of_curves = checksum_of_curves(curves)
    checksum = checksum_of((record.key, *texts, environment, seconds, recorded, of_curves))
    written = database.execute(
        "INSERT OR IGNORE INTO runs SELECT ?, ?, ?, ?, id, ?, ?, ?, ? FROM environments WHERE json = ?",
        (record.key, *texts, seconds, recorded, of_curves, checksum, environment),
    ).rowcount
    if written:
        rows = [(record.key, metric, blob) for metric, blob in curves.items()]
        database.executemany("INSERT INTO history VALUES (?, ?, ?)", rows)
    return bool(written)


def select_rows(database: sqlite3.Connection, history: bool) -> Iterator[tuple[tuple[Any, ...], Curves | None]]:
    """Every run's row with its curves, or without, one at a time; curves without a run are damage as well."""
    runs = database.execute(f"SELECT {COLUMNS} FROM {_TABLES} ORDER BY key")
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


def select_row(database: sqlite3.Connection, key: str) -> tuple[tuple[Any, ...], Curves] | None:
    """A run's row with its curves, if it is there."""
    row = database.execute(f"SELECT {COLUMNS} FROM {_TABLES} WHERE key = ?", (key,)).fetchone()
    rows = database.execute("SELECT metric, epochs FROM history WHERE key = ?", (key,)).fetchall()
    return None if row is None else (row, dict(rows))


def parse_record(row: tuple[Any, ...], curves: Curves | None) -> Record:
    """The record of a row, if it is as it was written."""
    verify_row(row, curves)
    key, config, state, metrics, environment, seconds, *_ = row
    try:
        return Record(
            key=key,
            config=RunConfig.from_dict(json.loads(config)),
            state=state,
            metrics=load_metrics(metrics),
            history={metric: unpack_curve(blob) for metric, blob in (curves or {}).items()},
            environment=json.loads(environment),
            seconds=seconds,
        )
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"run {key!r} cannot be read ({error})") from error


def verify_row(row: tuple[Any, ...], curves: Curves | None) -> None:
    """Compares a row with its checksums; raises `DamagedError`."""
    *values, of_curves, checksum = row
    try:
        intact = checksum_of((*values, of_curves)) == checksum and (curves is None or checksum_of_curves(curves) == of_curves)
    except TypeError:  # an entry of a type that none of ours has
        intact = False
    if not intact:
        raise DamagedError(f"run {row[0]!r} is not as it was written (its checksum is another)")


def checksum_of_curves(curves: Mapping[str, bytes]) -> bytes:
    """The checksum of all curves of a run."""
    return checksum_of(part for pair in sorted(curves.items(), key=lambda pair: str(pair[0])) for part in pair)
