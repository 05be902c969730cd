"""Files: the lab's data folder, atomic writing, hashes, and bounded reading of what may come from anywhere.

A device or a pipe is refused before it is opened, as it has no end or never begins. docs/security.md lists the bounds.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from platformdirs import PlatformDirs

from boolit.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
AT_ONCE = 2**20  # bytes of a header; an archive's own are far shorter
LARGEST_CONTENT = 2**29  # bytes of one file that is read at once; the largest published one, of STL-10, has 221 MB
LEAST_UNPACKED = 2**29  # bytes that any file may unpack to
MOST_UNPACKED_RATIO = 16  # and times its own size
CHUNK = 2**20  # bytes hashed at a time


def data_folder() -> Path:
    """``BOOLIT_DATA`` if it is set, else ``boolit`` in the platform's cache folder; it need not exist yet.

    Example:
        >>> data_folder().is_absolute()
        True
    """
    chosen = os.environ.get("BOOLIT_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return PlatformDirs("boolit", appauthor=False, opinion=False).user_cache_path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A path to write a file or folder to, which gets its real name when the block ends without an error and is deleted else.

    So it is there whole or not at all, whenever the process is killed. The name is unique: any number of processes may write
    at once, and the last one wins; of a folder, the first one.
    """
    part = path.with_name(f".{path.name}.{uuid4().hex[:16]}.part")
    try:
        yield part
        if not (part.is_dir() and path.is_dir()):
            os.replace(part, path)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            part.unlink()


def hash_file(path: Path) -> str:
    """The SHA-256 of a file; it raises OSError as ``open`` does."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def file_digest(path: Path, what: str) -> str:
    """`hash_file`, computed once while size and time of the file stay; ``what`` names a file that is missing in the error."""
    try:
        state = regular_file(path).stat()
        return _cached_hash(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"the {what} {path} cannot be read ({error.strerror}); check the path") from None


@lru_cache(maxsize=8)
def _cached_hash(path: Path, size: int, time: int) -> str:  # noqa: ARG001 (a changed file is hashed again)
    return hash_file(path)


def cache_key(*words: object) -> str:
    """Sixteen digits that stand for some words: the name of what is cached under them.

    Example:
        >>> cache_key(1, "train") == cache_key(1, "train") != cache_key(2, "train")
        True
    """
    return hashlib.sha256(name_bytes("\n".join(map(str, words)))).hexdigest()[:16]


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


def read_array(member: IO[bytes], most: int) -> NDArray[Any]:
    """The array in a .npy file or member of at most so many bytes; numpy's own reader takes the memory before it looks.

    Raises ValueError (`TooLargeError` is one), as numpy does.
    """
    import numpy as np
    from numpy.lib import format as npy

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
