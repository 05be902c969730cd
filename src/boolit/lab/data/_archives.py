"""Archives are read, never unpacked: so no name in one can lead out of a folder. A folder is read the same way."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from boolit.lab.data._remote import UnreadableError

TARBALLS = (".tar.gz", ".tgz")
LARGEST = 2**29  # bytes of one file that is read at once; the largest published one, of STL-10, has 221 MB


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
    try:
        with path.open("rb") as file:
            yield from _in_zip(file) if path.suffix == ".zip" else _in_tarball(file)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UnreadableError(f"is no whole archive ({error})") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror or error})") from None


def _in_folder(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield Entry(f"{folder.name}/{path.relative_to(folder).as_posix()}", partial(_content_of_file, path))


def _in_tarball(file: IO[bytes]) -> Iterator[Entry]:
    with tarfile.open(fileobj=file, mode="r|gz") as archive:
        for member in archive:
            _refuse_unsafe(member)
            if member.isfile():
                yield Entry(member.name.removeprefix("./"), partial(_content, archive, member))


def _in_zip(file: IO[bytes]) -> Iterator[Entry]:
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(TARBALLS):
                with archive.open(name) as inner:
                    yield from _in_tarball(inner)


def _refuse_unsafe(member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise UnreadableError(f"holds {member.name!r}, a path that leads out of its folder")
    if not (member.isfile() or member.isdir()):
        raise UnreadableError(f"holds {member.name!r}, which is neither file nor folder")


def _content_of_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"has {path.name}, which cannot be read ({error.strerror or error})") from None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > LARGEST:
        raise UnreadableError(f"holds {member.name!r} of {member.size:,} bytes, more than any that was published")
    stream = archive.extractfile(member)
    return stream.read() if stream else b""
