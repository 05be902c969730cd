"""Published files: where they come from, where they are kept, what they must hold, and the check that they do."""

from __future__ import annotations

import gzip
import hashlib
import sys
import zipfile
import zlib
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path, PurePosixPath
from tarfile import TarFile, TarInfo
from typing import IO, Any, ClassVar, cast

from boolit.errors import UserError
from boolit.lab.common.files import AT_ONCE, CHUNK, LARGEST_CONTENT, BoundedReader, data_folder, read_bounded
from boolit.lab.datasets.base import Source, Task

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class UnreadableError(ValueError):
    """What is wrong with a file, to be said after its name."""


def md5_of(content: bytes) -> str:
    """Of some archives nothing else was published. It tells damage, not malice: what is read is never run."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class PublishedFile:
    """A file of a dataset. ``sha256`` and ``size`` (in bytes) are those of its content: of what a ``.gz`` holds.

    Two archives of the same bytes differ with the program that packed them, so mirrors and hand-filled folders do; what they
    hold does not. For the same reason a tarball with ``members``, which are digests by path, is compared by those alone, and
    ``size`` is its own; ``hash_member`` makes the digest of a member's content, or raises `UnreadableError`. The folder
    ``unpacked`` beside a file may take its place.
    """

    dataset: str
    name: str
    urls: tuple[str, ...] = ()
    sha256: str = ""
    size: int = 0
    unpacked: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    hash_member: Callable[[bytes], str] = md5_of

    @property
    def path(self) -> Path:
        """Where the file is kept, or would be."""
        return data_folder() / self.dataset / self.name

    @property
    def kept(self) -> Path | None:
        """The file, or the folder in its place, if one is here."""
        folder = self.path.with_name(self.unpacked or self.name)
        return self.path if self.path.is_file() else folder if folder.is_dir() and self.unpacked else None

    @property
    def fix(self) -> str:
        """What to do where the file is missing or bad."""
        folder = f" or what it unpacks to, {self.unpacked}/," if self.unpacked else ""
        by_hand = f"put the published {self.name}{folder} into {self.path.parent}"
        return f"run `boolit data fetch {self.dataset}`, or {by_hand}" if self.urls else by_hand

    def error(self, path: Path, fault: str) -> UserError:
        """What is said of a bad copy."""
        return UserError(f"{path} {fault}; {self.fix}")


class Provenance:
    """Where something comes from, its licence, and the files to fetch; none if ``package`` brings it along.

    A subclass says so itself, or names its table in published.toml: ``class Mnist(PublishedDataset, published="mnist")``.
    """

    home: ClassVar[str]
    licence: ClassVar[str]
    files: ClassVar[tuple[PublishedFile, ...]] = ()
    package: ClassVar[str | None] = None

    def __init_subclass__(cls, published: str = "", hash_member: Callable[[bytes], str] = md5_of, **options: Any) -> None:
        super().__init_subclass__(**options)
        if published:
            facts = _publications()[published]
            cls.files = tuple(_file(published, hash_member, **file) for file in facts.get("files", ()))
            for name in facts.keys() - {"files"}:
                setattr(cls, name, facts[name])


@cache
def _publications() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _file(dataset: str, hash_member: Callable[[bytes], str], name: str, **facts: Any) -> PublishedFile:
    facts["urls"] = tuple(facts.get("urls", ()))
    return PublishedFile(dataset, name, **facts, hash_member=hash_member)


class PublishedDataset(Source, Provenance, ABC):
    """What is known of a dataset before it is here: ``samples`` by split (with the default options), and where it is from."""

    task: ClassVar[Task]
    samples: ClassVar[Mapping[str, int]]


TARBALLS = (".tar.gz", ".tgz")
LARGEST = LARGEST_CONTENT
MOST_HEADERS = 2**27  # bytes of all headers of a tarball: a quarter of a million files
MOST_UNPACKED = 2**33  # bytes a tarball may unpack to; STL-10's, the largest, has 3.2 GB
DIRECTORY = 2**24  # bytes of a zip file's directory: a third of a million files


@dataclass(frozen=True)
class ArchiveEntry:
    """A file in an archive or folder; ``read`` gives its content, and only until the next entry is asked for."""

    name: str
    read: Callable[[], bytes]


def archive_entries(path: Path) -> Iterator[ArchiveEntry]:
    """The files in a folder, a tarball, or a zip file; of tarballs in a zip file, theirs. Archives are read, never unpacked: so
    no name in one can lead out of a folder.

    Names are paths within the archive. Those in a folder begin with its own name, as they would in a tarball of it.
    """
    if path.is_dir():
        yield from _folder_entries(path)
        return
    with _report_damage(), path.open("rb") as file:
        yield from _zip_entries(file) if path.suffix == ".zip" else _tarball_entries(file)


@contextmanager
def _report_damage() -> Iterator[None]:
    """Around reading: whatever the standard library raises of a damaged archive, of many kinds, becomes `UnreadableError`."""
    try:
        yield
    except (UnreadableError, UserError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableError(f"cannot be read ({error.strerror})") from None
        raise UnreadableError(f"is no whole archive ({' '.join(str(error).split()) or type(error).__name__})") from None


def _folder_entries(folder: Path) -> Iterator[ArchiveEntry]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield ArchiveEntry(f"{folder.name}/{path.relative_to(folder).as_posix()}", partial(_read_file, path))


def _tarball_entries(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    with gzip.GzipFile(fileobj=file) as unpacked:
        # A header says how long the next one is, and is believed by tarfile.
        bounded = BoundedReader(cast(IO[bytes], unpacked), MOST_HEADERS, forwards=True)
        with TarFile(fileobj=cast(IO[bytes], bounded)) as archive:
            for member in archive:
                _refuse_unsafe(member)
                if member.offset_data + member.size > MOST_UNPACKED:
                    raise UnreadableError(f"unpacks to more than {MOST_UNPACKED:,} bytes, more than any that was published")
                if member.isfile():
                    yield ArchiveEntry(member.name.removeprefix("./"), partial(_read_member, archive, member, bounded))
        while unpacked.read(2**20):  # to the end, where the checksum of it all is
            if unpacked.tell() > MOST_UNPACKED:
                raise UnreadableError(f"unpacks to more than {MOST_UNPACKED:,} bytes, more than any that was published")


def _zip_entries(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    with zipfile.ZipFile(cast(IO[bytes], BoundedReader(file, 2**62, DIRECTORY))) as archive:
        for name in archive.namelist():
            if name.endswith(TARBALLS):
                with archive.open(name) as inner:
                    yield from _tarball_entries(inner)


def _refuse_unsafe(member: TarInfo) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise UnreadableError(f"holds {member.name!r}, a path that leads out of its folder")
    if not (member.isfile() or member.isdir()) or member.issparse():
        raise UnreadableError(f"holds {member.name!r}, which is neither file nor folder")


def _read_file(path: Path) -> bytes:
    try:
        return read_bounded(path, LARGEST, "put the published one there")
    except OSError as error:
        raise UnreadableError(f"has {path.name}, which cannot be read ({error.strerror or error})") from None


def _read_member(archive: TarFile, member: TarInfo, bounded: BoundedReader) -> bytes:
    if member.size > LARGEST:
        raise UnreadableError(f"holds {member.name!r} of {member.size:,} bytes, more than any that was published")
    with _report_damage():
        stream = archive.extractfile(member)
        bounded.at_once, bounded.counted = LARGEST, False
        content = stream.read() if stream else b""
        bounded.at_once, bounded.counted = AT_ONCE, True
        if len(content) != member.size:
            raise UnreadableError(f"is cut off in {member.name!r}")
        return content


def read_verified(published: PublishedFile, path: Path) -> bytes:
    """The content of a copy; a `UserError` says what is wrong with a bad one."""
    return b"".join(_verified_chunks(published, path))


def _verified_chunks(published: PublishedFile, path: Path) -> Iterator[bytes]:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(published, path):
        digest.update(chunk)
        size += len(chunk)
        if size > published.size:  # also keeps an archive that unpacks without end from doing so
            raise published.error(path, f"holds more than the published {published.size:,} bytes")
        yield chunk
    if size < published.size:
        raise published.error(path, f"is cut off after {size:,} of {published.size:,} bytes")
    if digest.hexdigest() != published.sha256:
        raise published.error(
            path, f"was altered: the SHA-256 of its content begins {digest.hexdigest()[:8]}, not {published.sha256[:8]}"
        )


def read_verified_members(published: PublishedFile, path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every member that is compared, from a tarball or the folder it unpacks to."""
    awaited = dict(published.members)
    try:
        for entry in archive_entries(path):
            if entry.name in awaited:
                content = entry.read()
                _compare_member(published, entry.name, awaited.pop(entry.name), content)
                yield entry.name, content
    except UnreadableError as error:
        raise published.error(path, str(error)) from None
    if awaited:
        raise published.error(path, f"lacks {next(iter(awaited))}")


def verify_file(published: PublishedFile, path: Path) -> None:
    """Reads a copy through, to its last byte, and refuses a bad one; of a folder without known members nothing is compared."""
    if published.members:
        for _ in read_verified_members(published, path):
            pass
    elif not (path.is_dir() and published.unpacked):
        for _ in _verified_chunks(published, path):
            pass


def _compare_member(published: PublishedFile, name: str, digest: str, content: bytes) -> None:
    try:
        found = published.hash_member(content)
    except UnreadableError as error:
        raise UnreadableError(f"holds {name}, which {error}") from None
    if found != digest:
        raise UnreadableError(f"was altered: the hash of {name} begins {found[:8]}, not {digest[:8]}")


def _chunks(published: PublishedFile, path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if published.name.endswith(".gz") else path.open("rb") as content:
            while chunk := content.read(CHUNK):
                yield chunk
    except EOFError:
        raise published.error(path, "is cut off in the middle of its gzip stream") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise published.error(path, f"is no whole gzip file ({error})") from None
    except OSError as error:
        raise published.error(path, f"cannot be read ({error.strerror or error})") from None
