"""Which process made a claim, and whether it still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

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
