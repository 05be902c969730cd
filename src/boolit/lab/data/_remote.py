"""A published file: where it comes from, where it is kept, and what it must hold."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from boolit.lab.errors import UserError
from boolit.lab.folders import data_folder

PIECE = 2**20


@dataclass(frozen=True)
class Remote:
    """A file of a dataset. ``sha256`` and ``size`` (in bytes) are those of its content: of what a ``.gz`` holds.

    Two archives of the same bytes differ with the program that packed them, so mirrors and hand-filled folders do; what they
    hold does not.
    """

    dataset: str
    file: str
    urls: tuple[str, ...]
    sha256: str
    size: int

    @property
    def path(self) -> Path:
        """Where the file is kept, or would be."""
        return data_folder() / self.dataset / self.file

    @property
    def fix(self) -> str:
        """What to do where the file is missing or bad."""
        return f"run `boolit data fetch {self.dataset}`, or put the published {self.file} into {self.path.parent}"


def verified(remote: Remote, path: Path) -> Iterator[bytes]:
    """The content of a copy, piece by piece; a `UserError` says what is wrong with it, after the last piece at the latest."""
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(remote, path):
        digest.update(piece)
        size += len(piece)
        if size > remote.size:  # also keeps an archive that unpacks without end from doing so
            raise _faulty(remote, path, f"holds more than the published {remote.size:,} bytes")
        yield piece
    if size < remote.size:
        raise _faulty(remote, path, f"is cut off after {size:,} of {remote.size:,} bytes")
    if digest.hexdigest() != remote.sha256:
        raise _faulty(
            remote, path, f"was altered: the SHA-256 of its content begins {digest.hexdigest()[:8]}, not {remote.sha256[:8]}"
        )


def check(remote: Remote, path: Path) -> None:
    """Reads a copy through, to its last byte, and refuses a bad one."""
    for _ in verified(remote, path):
        pass


def _pieces(remote: Remote, path: Path) -> Iterator[bytes]:
    try:
        with _opened(remote, path) as content:
            while piece := content.read(PIECE):
                yield piece
    except EOFError:
        raise _faulty(remote, path, "is cut off in the middle of its gzip stream") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _faulty(remote, path, f"is no whole gzip file ({error})") from None
    except OSError as error:
        raise _faulty(remote, path, f"cannot be read ({error.strerror or error})") from None


def _opened(remote: Remote, path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if remote.file.endswith(".gz") else path.open("rb")


def _faulty(remote: Remote, path: Path, fault: str) -> UserError:
    return UserError(f"{path} {fault}; {remote.fix}")
