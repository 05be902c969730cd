"""Bounded reading of tables, until scikit-learn's preparation replaces this package."""

from __future__ import annotations

import math
from typing import IO, Any

from numpy.typing import NDArray

AT_ONCE = 2**20
LEAST_UNPACKED = 2**29
MOST_UNPACKED_RATIO = 16


class TooLargeError(ValueError):
    """A file asks for more bytes than it may."""


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
