"""Copies of published files are read through this: nothing else of a copy is believed."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from boolit.lab.data._archives import entries
from boolit.lab.data._remote import Member, Remote, UnreadableError, faulty

PIECE = 2**20


def verified(remote: Remote, path: Path) -> Iterator[bytes]:
    """The content of a copy, piece by piece; a `UserError` says what is wrong with it, after the last piece at the latest."""
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(remote, path):
        digest.update(piece)
        size += len(piece)
        if size > remote.size:  # also keeps an archive that unpacks without end from doing so
            raise faulty(remote, path, f"holds more than the published {remote.size:,} bytes")
        yield piece
    if size < remote.size:
        raise faulty(remote, path, f"is cut off after {size:,} of {remote.size:,} bytes")
    if digest.hexdigest() != remote.sha256:
        raise faulty(
            remote, path, f"was altered: the SHA-256 of its content begins {digest.hexdigest()[:8]}, not {remote.sha256[:8]}"
        )


def verified_members(remote: Remote, path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every member that is compared, from a tarball or the folder it unpacks to."""
    awaited = {member.name: member for member in remote.members}
    try:
        for entry in entries(path):
            if entry.name in awaited:
                content = entry.read()
                _compare(awaited.pop(entry.name), content)
                yield entry.name, content
    except UnreadableError as error:
        raise faulty(remote, path, str(error)) from None
    if awaited:
        raise faulty(remote, path, f"lacks {next(iter(awaited))}")


def check(remote: Remote, path: Path) -> None:
    """Reads a copy through, to its last byte, and refuses a bad one; of a folder without known members nothing is compared."""
    if remote.members:
        for _ in verified_members(remote, path):
            pass
    elif not (path.is_dir() and remote.unpacked):
        for _ in verified(remote, path):
            pass


def _compare(member: Member, content: bytes) -> None:
    try:
        found = member.hashed(content)
    except UnreadableError as error:
        raise UnreadableError(f"holds {member.name}, which {error}") from None
    if found != member.digest:
        raise UnreadableError(f"was altered: the hash of {member.name} begins {found[:8]}, not {member.digest[:8]}")


def _pieces(remote: Remote, path: Path) -> Iterator[bytes]:
    try:
        with _opened(remote, path) as content:
            while piece := content.read(PIECE):
                yield piece
    except EOFError:
        raise faulty(remote, path, "is cut off in the middle of its gzip stream") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise faulty(remote, path, f"is no whole gzip file ({error})") from None
    except OSError as error:
        raise faulty(remote, path, f"cannot be read ({error.strerror or error})") from None


def _opened(remote: Remote, path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if remote.file.endswith(".gz") else path.open("rb")
