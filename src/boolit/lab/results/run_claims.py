"""Claims: which process works on which run, and whether it is still alive, so that no two train the same one."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# A process on another host cannot be asked: it is alive while its heartbeat comes at least this often.
HEARTBEAT_SECONDS = 30.0
EXPIRY_SECONDS = 6 * HEARTBEAT_SECONDS

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process; ``started`` tells it from a later one with the same number."""

    host: str
    pid: int
    started: str


def current_process() -> Process:
    """The calling process."""
    return Process(socket.gethostname(), os.getpid(), _start_time(os.getpid()) or "")


def is_alive(process: Process, seconds_silent: float) -> bool:
    """Whether a process still runs; on another host all we know is for how many seconds it has sent no heartbeat.

    Example:
        >>> is_alive(current_process(), seconds_silent=1e9), is_alive(Process("elsewhere", 1, ""), seconds_silent=1e9)
        (True, False)
    """
    if process.host != socket.gethostname() or os.name != "posix":
        return seconds_silent <= EXPIRY_SECONDS
    return _start_time(process.pid) == process.started


def _start_time(pid: int) -> str | None:
    """When a process of this host started, "" where the system does not say, None if there is no such process."""
    try:
        if not (_PROC / "self/stat").exists():
            os.kill(pid, 0)
            return ""
        # The name, in parentheses, may contain anything; state and start time are fields 3 and 22 (proc(5)).
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except PermissionError:  # it exists, but belongs to another user
        return ""
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


_CLAIM = """
INSERT OR IGNORE INTO claims SELECT ?1, ?2, ?3, ?4, ?5, ?6, 0
WHERE ?7 OR NOT EXISTS (SELECT 1 FROM runs WHERE key = ?1)
"""


def claim(database: sqlite3.Connection, key: str, owner: str, process: Process, again: bool = False) -> bool:
    """Claims a run unless it is claimed already, or in the store and not to be trained ``again``; whether it did."""
    return database.execute(_CLAIM, (key, owner, *process, time.time(), again)).rowcount == 1


def release(database: sqlite3.Connection, claims: Iterable[tuple[str, str]], process: Process) -> None:
    """Drops those of the claims, given as key and owner, that a process still has."""
    mine = [(key, owner, *process) for key, owner in claims]
    database.executemany("DELETE FROM claims WHERE (key, owner, host, pid, started) = (?, ?, ?, ?, ?)", mine)


class HeartbeatMonitor:
    """When the last heartbeat of each process on other hosts was seen, by this process's own monotonic clock.

    Clocks of other hosts may be wrong, so none is compared with ours: a process is silent while its count of heartbeats does
    not change.
    """

    def __init__(self) -> None:
        self._seen: dict[Process, tuple[int, float]] = {}

    def seconds_silent(self, process: Process, beats: int) -> float:
        """For how long the process has sent no heartbeat."""
        now = time.monotonic()
        seen = self._seen.get(process)
        if seen is None or seen[0] != beats:
            seen = self._seen[process] = (beats, now)
        return now - seen[1]


def expire_claims(database: sqlite3.Connection, watch: HeartbeatMonitor) -> None:
    """Drops the claims of processes that have died."""
    holders = database.execute("SELECT host, pid, started, max(beats) FROM claims GROUP BY host, pid, started")
    for host, pid, started, beats in holders.fetchall():
        process = Process(host, pid, started)
        if not is_alive(process, watch.seconds_silent(process, beats)):
            database.execute("DELETE FROM claims WHERE (host, pid, started) = (?, ?, ?)", process)


def heartbeat(database: sqlite3.Connection, process: Process) -> None:
    """Shows other hosts that the process is alive."""
    database.execute("UPDATE claims SET beats = beats + 1 WHERE (host, pid, started) = (?, ?, ?)", process)


class ClaimHolder(NamedTuple):
    """A process that works on runs: ``since`` is in seconds since 1970, by its own clock; ``runs`` is how many."""

    host: str
    pid: int
    since: float
    runs: int


def holders(database: sqlite3.Connection) -> list[ClaimHolder]:
    """The processes that work on the store's folder."""
    rows = database.execute("SELECT host, pid, min(since), count(*) FROM claims GROUP BY host, pid, started ORDER BY 3, 1, 2")
    return [ClaimHolder(*row) for row in rows]
