"""Claims: which process is at work on which run, and whether it still lives, so that no two train the same one."""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# Which process made a claim, and whether it still lives.

# A process on another host is asked for nothing: it lives while it gives a sign this often (seconds).
PULSE = 30.0
STALE = 6 * PULSE

_PROC = Path("/proc")


class Process(NamedTuple):
    """A process, told from a later one that was given the same number by when it started."""

    host: str
    pid: int
    started: str


def this_process() -> Process:
    """The process that asks."""
    return Process(socket.gethostname(), os.getpid(), _started(os.getpid()) or "")


def lives(process: Process, silence: float) -> bool:
    """Whether a process still runs; ``silence`` is for how long it was watched and gave no sign: all we have of another host.

    Example:
        >>> lives(this_process(), silence=1e9), lives(Process("elsewhere", 1, ""), silence=1e9)
        (True, False)
    """
    if process.host != socket.gethostname() or os.name != "posix":
        return silence <= STALE
    return _started(process.pid) == process.started


def _started(pid: int) -> str | None:
    """When a process of this host started, "" where the system does not say, None if there is no such process."""
    if not (_PROC / "self/stat").exists():
        return "" if _answers(pid) else None
    try:
        # The name, in parentheses, may hold anything; state and start time are fields 3 and 22 (proc(5)).
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# Claims: which process is at work on which run, so that no two train the same one.

_TAKE = """
INSERT OR IGNORE INTO claims SELECT ?1, ?2, ?3, ?4, ?5, ?6, 0
WHERE ?7 OR NOT EXISTS (SELECT 1 FROM runs WHERE key = ?1)
"""


def take(database: sqlite3.Connection, key: str, owner: str, process: Process, again: bool = False) -> bool:
    """Claims a run, unless it is claimed already or in the store; the latter does not matter if it is to be trained again."""
    return database.execute(_TAKE, (key, owner, *process, time.time(), again)).rowcount == 1


def give_back(database: sqlite3.Connection, claims: Iterable[tuple[str, str]], process: Process) -> None:
    """Drops claims, given as key and owner, that a process still has."""
    mine = [(key, owner, *process) for key, owner in claims]
    database.executemany("DELETE FROM claims WHERE (key, owner, host, pid, started) = (?, ?, ?, ?, ?)", mine)


class Watch:
    """What was seen of the claims of other hosts: how many signs of life, and when, by this process's own steady clock.

    Hosts' clocks may be wrong, so none is compared with another: a process is silent for as long as its count of signs stays
    as it is while somebody watches.
    """

    def __init__(self) -> None:
        self._seen: dict[Process, tuple[int, float]] = {}

    def silence(self, process: Process, beats: int) -> float:
        """For how long a process has given no sign."""
        now = time.monotonic()
        seen = self._seen.get(process)
        if seen is None or seen[0] != beats:
            seen = self._seen[process] = (beats, now)
        return now - seen[1]


def bury(database: sqlite3.Connection, watch: Watch) -> None:
    """Drops the claims of processes that have died."""
    holders = database.execute("SELECT host, pid, started, max(beats) FROM claims GROUP BY host, pid, started")
    for host, pid, started, beats in holders.fetchall():
        process = Process(host, pid, started)
        if not lives(process, watch.silence(process, beats)):
            database.execute("DELETE FROM claims WHERE (host, pid, started) = (?, ?, ?)", process)


def beat(database: sqlite3.Connection, process: Process) -> None:
    """Shows other hosts that the process lives."""
    database.execute("UPDATE claims SET beats = beats + 1 WHERE (host, pid, started) = (?, ?, ?)", process)


class Holder(NamedTuple):
    """A process at work on runs: where, which, since when (seconds since 1970, by its own clock), on how many."""

    host: str
    pid: int
    since: float
    runs: int


def holders(database: sqlite3.Connection) -> list[Holder]:
    """Who is at work on the store's folder."""
    rows = database.execute("SELECT host, pid, min(since), count(*) FROM claims GROUP BY host, pid, started ORDER BY 3, 1, 2")
    return [Holder(*row) for row in rows]
