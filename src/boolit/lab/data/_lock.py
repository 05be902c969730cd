"""One process at a time: a lock that dies with its process, on every system and without a further package."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

WAIT = 5.0  # seconds between two questions, so that an interrupt is noticed


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Waits until no other process is within; the file holds nothing."""
    with closing(sqlite3.connect(file, timeout=WAIT, isolation_level=None)) as lock:
        while True:
            try:
                lock.execute("BEGIN EXCLUSIVE")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):  # its code is known from Python 3.11 on only
                    raise
        try:
            yield
        finally:
            lock.execute("ROLLBACK")
