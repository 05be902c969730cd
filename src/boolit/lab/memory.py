"""Whether something fits into this machine, asked before it is allocated."""

from __future__ import annotations

import os
import sys

from boolit.lab.errors import UserError

GIB = 2**30


def machine_bytes() -> int:
    """This machine's memory; without a limit where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # no such function, or no such name, on this system
        return sys.maxsize


def require_memory(needed: int, what: str, fix: str) -> None:
    """Refuses what cannot fit.

    Example:
        >>> require_memory(2**80, "the data", "lower data.train")
        Traceback (most recent call last):
        boolit.lab.errors.UserError: the data needs about 1,125,899,906,842,624 GiB of memory, this machine has ...
    """
    available = machine_bytes()
    if needed > available:
        sizes = f"needs about {needed // GIB:,} GiB of memory, this machine has {available / GIB:,.1f}"
        raise UserError(f"{what} {sizes}; {fix}")
