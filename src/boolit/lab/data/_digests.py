"""Which file it is that a run was made with."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from boolit.lab.errors import UserError
from boolit.lab.files import regular_file

PIECE = 2**20


def file_digest(path: Path, what: str) -> str:
    """The SHA-256 of a file, found once while its size and time stay; ``what`` is for what is said of one that is missing."""
    try:
        state = regular_file(path).stat()
        return _hashed(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"the {what} {path} cannot be read ({error.strerror}); check the path") from None


@lru_cache(maxsize=8)
def _hashed(path: Path, size: int, time: int) -> str:  # noqa: ARG001 (a changed file is hashed anew)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()
