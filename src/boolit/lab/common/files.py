"""The data folder, atomic writing, and hashes of files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from platformdirs import PlatformDirs

from boolit.errors import UserError

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def data_folder() -> Path:
    """Return ``BOOLIT_DATA`` if it is set, else ``boolit`` in the platform's cache folder. It need not exist."""
    chosen = os.environ.get("BOOLIT_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return PlatformDirs("boolit", appauthor=False, opinion=False).user_cache_path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path`` on success and deleted on an error.

    Any number of processes may write at once: the last file wins, the first folder wins.
    """
    part = path.with_name(f".{path.name}.{uuid4().hex[:16]}.part")
    try:
        yield part
        if not (part.is_dir() and path.is_dir()):
            os.replace(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)


def file_digest(path: Path, what: str) -> str:
    """Return the SHA-256 of a file, computed again only when the file changes; ``what`` names it in errors."""
    try:
        state = path.stat()
        return _cached_hash(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"the {what} {path} cannot be read ({error.strerror}); check the path") from None


@lru_cache(maxsize=8)
def _cached_hash(path: Path, size: int, time: int) -> str:  # noqa: ARG001 (a changed file is hashed again)
    from pooch import file_hash

    return str(file_hash(path))


def cache_key(*words: object) -> str:
    """Return 16 hexadecimal digits that identify the words, which may be file names that are not UTF-8."""
    return hashlib.sha256(os.fsencode("\n".join(map(str, words)))).hexdigest()[:16]


def csv_cell(value: Any) -> Any:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe; numbers stay as they are."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value
