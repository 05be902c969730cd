"""Archives are read, never unpacked: so no name in one can lead out of a folder. A folder is read the same way."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tarfile import TarFile, TarInfo
from typing import IO, cast

from boolit.lab.data._remote import UnreadableError
from boolit.lab.errors import UserError
from boolit.lab.files import AT_ONCE, LARGEST_CONTENT, BoundedReader, read_bounded

TARBALLS = (".tar.gz", ".tgz")
LARGEST = LARGEST_CONTENT
MOST_HEADERS = 2**27  # bytes of all headers of a tarball: a quarter of a million files
MOST_UNPACKED = 2**33  # bytes a tarball may unpack to; STL-10's, the largest, has 3.2 GB
DIRECTORY = 2**24  # bytes of a zip file's directory: a third of a million files


@dataclass(frozen=True)
class Entry:
    """A file in an archive or folder; ``read`` gives its content, and only until the next entry is asked for."""

    name: str
    read: Callable[[], bytes]


def entries(path: Path) -> Iterator[Entry]:
    """The files in a folder, a tarball, or a zip file; of tarballs in a zip file, theirs.

    Names are paths within the archive. Those in a folder begin with its own name, as they would in a tarball of it.
    """
    if path.is_dir():
        yield from _in_folder(path)
        return
    with _told(), path.open("rb") as file:
        yield from _in_zip(file) if path.suffix == ".zip" else _in_tarball(file)


@contextmanager
def _told() -> Iterator[None]:
    """Around reading: whatever the standard library raises of a damaged archive, of many kinds, becomes `UnreadableError`."""
    try:
        yield
    except (UnreadableError, UserError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableError(f"cannot be read ({error.strerror})") from None
        raise UnreadableError(f"is no whole archive ({' '.join(str(error).split()) or type(error).__name__})") from None


def _in_folder(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield Entry(f"{folder.name}/{path.relative_to(folder).as_posix()}", partial(_content_of_file, path))


def _in_tarball(file: IO[bytes]) -> Iterator[Entry]:
    with gzip.GzipFile(fileobj=file) as unpacked:
        # A header says how long the next one is, and is believed by tarfile.
        bounded = BoundedReader(cast(IO[bytes], unpacked), MOST_HEADERS, forwards=True)
        with TarFile(fileobj=cast(IO[bytes], bounded)) as archive:
            for member in archive:
                _refuse_unsafe(member)
                if member.offset_data + member.size > MOST_UNPACKED:
                    raise UnreadableError(f"unpacks to more than {MOST_UNPACKED:,} bytes, more than any that was published")
                if member.isfile():
                    yield Entry(member.name.removeprefix("./"), partial(_content, archive, member, bounded))
        while unpacked.read(2**20):  # to the end, where the checksum of it all is
            if unpacked.tell() > MOST_UNPACKED:
                raise UnreadableError(f"unpacks to more than {MOST_UNPACKED:,} bytes, more than any that was published")


def _in_zip(file: IO[bytes]) -> Iterator[Entry]:
    with zipfile.ZipFile(cast(IO[bytes], BoundedReader(file, 2**62, DIRECTORY))) as archive:
        for name in archive.namelist():
            if name.endswith(TARBALLS):
                with archive.open(name) as inner:
                    yield from _in_tarball(inner)


def _refuse_unsafe(member: TarInfo) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise UnreadableError(f"holds {member.name!r}, a path that leads out of its folder")
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise UnreadableError(f"holds {member.name!r}, which is neither file nor folder")


def _content_of_file(path: Path) -> bytes:
    try:
        return read_bounded(path, LARGEST, "put the published one there")
    except OSError as error:
        raise UnreadableError(f"has {path.name}, which cannot be read ({error.strerror or error})") from None


def _content(archive: TarFile, member: TarInfo, bounded: BoundedReader) -> bytes:
    if member.size > LARGEST:
        raise UnreadableError(f"holds {member.name!r} of {member.size:,} bytes, more than any that was published")
    with _told():
        stream = archive.extractfile(member)
        bounded.at_once, bounded.counted = LARGEST, False
        content = stream.read() if stream else b""
        bounded.at_once, bounded.counted = AT_ONCE, True
        if len(content) != member.size:
            raise UnreadableError(f"is cut off in {member.name!r}")
        return content
