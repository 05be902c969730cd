"""Claims: which process is at work on which run, so that no two train the same one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable

from boolit.lab.results._process import Process, lives

_TAKE = """
INSERT OR IGNORE INTO claims SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE key = ?1)
"""


def take(database: sqlite3.Connection, key: str, owner: str, process: Process) -> bool:
    """Claims a run, unless it is in the store or claimed already."""
    return database.execute(_TAKE, (key, owner, *process, time.time())).rowcount == 1


def give_back(database: sqlite3.Connection, claims: Iterable[tuple[str, str]], process: Process) -> None:
    """Drops claims, given as key and owner, that a process still has."""
    mine = [(key, owner, *process) for key, owner in claims]
    database.executemany("DELETE FROM claims WHERE (key, owner, host, pid, started) = (?, ?, ?, ?, ?)", mine)


def bury(database: sqlite3.Connection) -> None:
    """Drops the claims of processes that have died."""
    holders = database.execute("SELECT host, pid, started, max(heartbeat) FROM claims GROUP BY host, pid, started")
    for host, pid, started, heartbeat in holders.fetchall():
        if not lives(Process(host, pid, started), silence=time.time() - heartbeat):
            database.execute("DELETE FROM claims WHERE (host, pid, started) = (?, ?, ?)", (host, pid, started))


def beat(database: sqlite3.Connection, process: Process) -> None:
    """Shows other hosts that the process lives."""
    sign = (time.time(), *process)
    database.execute("UPDATE claims SET heartbeat = ? WHERE (host, pid, started) = (?, ?, ?)", sign)
