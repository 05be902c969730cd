"""Files: the lab's folders, bounded reading of what may come from anywhere, hashes.

A device or a pipe is refused before it is opened, as it has no end or never begins. docs/security.md lists the bounds.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import sys
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from boolit.lab.common.errors import UserError

# Where the lab keeps what it downloads.


def data_folder() -> Path:
    """``BOOLIT_DATA`` if it is set, else ``boolit`` in the platform's cache folder; it need not exist yet.

    Example:
        >>> data_folder().is_absolute()
        True
    """
    chosen = os.environ.get("BOOLIT_DATA")
    return Path(chosen).expanduser().absolute() if chosen else _cache_folder() / "boolit"


def _cache_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The standard behind the variable wants a relative path ignored.
    return configured if configured.is_absolute() else Path.home() / ".cache"


# Reading files that may come from anywhere, with a bound on the bytes: every parser of the lab begins here.

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
AT_ONCE = 2**20  # bytes of a header; an archive's own are far shorter
LARGEST_CONTENT = 2**29  # bytes of one file that is read at once; the largest published one, of STL-10, has 221 MB
LEAST_UNPACKED = 2**29  # bytes that any file may unpack to
MOST_UNPACKED_RATIO = 16  # and times its own size


def name_bytes(name: str) -> bytes:
    """A file's name as it is on disk; one that is not UTF-8 comes as a text that ``encode`` alone refuses.

    Example:
        >>> name_bytes("caf\\udce9.png")
        b'caf\\xe9.png'
    """
    return name.encode("utf-8", "surrogateescape")


def csv_cell(value: Any) -> Any:
    """A value for a CSV file that a spreadsheet may open: a text it would take for a formula gets an apostrophe before it.

    Numbers, and texts that are numbers, stay as they are.

    Example:
        >>> [csv_cell(value) for value in ("=1+1", "@sum", "-1.5", -1.5, "red", "-red")]
        ["'=1+1", "'@sum", '-1.5', -1.5, 'red', "'-red"]
    """
    if not (isinstance(value, str) and value.startswith(FORMULA_STARTS)):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


class TooLargeError(ValueError):
    """A file asks for more bytes than it may."""


def regular_file(path: Path, fix: str = "give a regular file") -> Path:
    """The path, unless it is a device, a pipe or a socket; one that is not there, or a folder, is left to who opens it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return path
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{path} is a device, a pipe or a socket, which may have no end; {fix}")
    return path


def read_bounded(path: Path, most: int = LARGEST_CONTENT, fix: str = "give another file") -> bytes:
    """The content of a file of at most so many bytes; it raises OSError as ``read_bytes`` does."""
    with regular_file(path, fix).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path} has more than {most:,} bytes, the most that is read of such a file; {fix}")
    return content


def unpacked_limit(size: int) -> int:
    """How many bytes a packed file of some size may unpack to, in memory.

    Example:
        >>> unpacked_limit(1_000) == LEAST_UNPACKED, unpacked_limit(2**30) // 2**30
        (True, 16)
    """
    return max(LEAST_UNPACKED, MOST_UNPACKED_RATIO * size)


def read_array(member: IO[bytes], most: int) -> npt.NDArray[Any]:
    """The array in a .npy file or member of at most so many bytes; numpy's own reader takes the memory before it looks.

    Raises ValueError (`TooLargeError` is one), as numpy does.
    """
    version = npy.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"a .npy file of version {version}")
    shape, by_columns, kind = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(member)
    if kind.hasobject:
        raise ValueError("Python objects instead of plain arrays")
    size = math.prod(shape) * kind.itemsize
    if min((0, *shape)) < 0 or size > most:
        raise TooLargeError(
            f"an array of shape {shape}, {size:,} bytes, is more than the {most:,} that are read of such a file"
        )
    content = member.read(size + 1)
    if len(content) != size:
        raise ValueError(f"an array of shape {shape} has {len(content):,} bytes instead of {size:,}")
    return np.frombuffer(bytearray(content), kind).reshape(shape, order="F" if by_columns else "C")


class BoundedReader:
    """A binary file for a parser that believes the lengths it finds: one read, and all reads together, are bounded.

    ``at_once`` may be raised while the content of a member is read, which is not counted. A seek backwards is refused if
    ``forwards``: a parser of a stream that seeks back can be led round in circles.
    """

    def __init__(self, file: IO[bytes], total: int, at_once: int = AT_ONCE, forwards: bool = False) -> None:
        self._file, self._left, self.at_once, self._forwards = file, total, at_once, forwards
        self.counted = True

    def read(self, size: int = -1) -> bytes:
        """Bytes from here on."""
        content = b"" if size > self.at_once else self._file.read(self.at_once + 1 if size < 0 else size)
        if size > self.at_once or len(content) > self.at_once:
            raise TooLargeError(f"has a part of {max(size, len(content)):,} bytes where at most {self.at_once:,} are read")
        if self.counted:
            self._left -= len(content)
            if self._left < 0:
                raise TooLargeError("has more headers than any that was published")
        return content

    def seek(self, place: int, whence: int = 0) -> int:
        """Goes to a place, and returns it."""
        if self._forwards and (whence != 0 or place < self._file.tell()):
            raise TooLargeError("leads back to where it was read before")
        return self._file.seek(place, whence)

    def tell(self) -> int:
        """The place."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Yes."""
        return True


# Which file it is that a run was made with.

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
