"""Archives are read without unpacking; a name that leads out of one is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from boolit.errors import UserError
from boolit.lab.datasets.download import published as _archives
from boolit.lab.datasets.download.fetch import load_tensors
from boolit.lab.datasets.download.published import (
    PublishedFile,
    UnreadableError,
    archive_entries,
    md5_of,
    read_verified_members,
    verify_file,
)
from boolit.lab.datasets.images.photographs import Caltech101
from boolit.lab.datasets.status import fetch_files, file_state

FILES = {"set/a.bin": b"first", "set/deep/b.bin": b"second"}


def tarball(files: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for other in others:
            archive.addfile(other)
    return packed.getvalue()


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def contents(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read() for entry in archive_entries(path)}


def unpack(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def published(folder: Path) -> PublishedFile:
    members = {name: md5_of(content) for name, content in FILES.items()}
    folder.joinpath("sample").mkdir(parents=True)
    return PublishedFile("sample", "set.tar.gz", (), "", 100, "set", members)


def test_folder_tarball_and_zip_of_a_tarball_are_read_alike(tmp_path: Path) -> None:
    packed = tarball({f"./{name}": content for name, content in FILES.items()})
    (tmp_path / "set.tgz").write_bytes(packed)
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr("inner/set.tar.gz", packed)
        archive.writestr("inner/readme.txt", "not a tarball")
    unpack(tmp_path, FILES)
    for path in ("set", "set.tgz", "set.zip"):
        assert contents(tmp_path / path) == FILES


@pytest.mark.parametrize("name", ["../out", "set/../../out", "/out", "set/..\\..\\out"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "inner" / "set.tgz"
    path.parent.mkdir()
    path.write_bytes(tarball({**FILES, name: b"hostile"}))
    with pytest.raises(UnreadableError, match="a path that leads out of its folder"):
        contents(path)
    assert [file.name for file in tmp_path.rglob("*")] == ["inner", "set.tgz"]


@pytest.mark.parametrize(
    "other",
    [
        link("set/c.bin", tarfile.SYMTYPE, "/etc/passwd"),
        link("set/c.bin", tarfile.LNKTYPE, "set/a.bin"),
        link("set/c.bin", tarfile.CHRTYPE, ""),
        link("set/c.bin", tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_are_refused(tmp_path: Path, other: tarfile.TarInfo) -> None:
    path = tmp_path / "set.tgz"
    path.write_bytes(tarball(FILES, other))
    with pytest.raises(UnreadableError, match=r"'set/c.bin', which is neither file nor folder"):
        contents(path)


@pytest.mark.parametrize(
    "damage",
    [lambda packed: packed[: len(packed) // 2], lambda _: b"<html>", lambda _: b"", lambda packed: packed[:30] + b"\0" * 30],
)
@pytest.mark.parametrize("name", ["set.tgz", "set.zip"])
def test_a_damaged_archive_is_told(tmp_path: Path, damage: Callable[[bytes], bytes], name: str) -> None:
    path = tmp_path / name
    path.write_bytes(damage(tarball(FILES)))
    with pytest.raises(UnreadableError, match=r"is no whole archive|cannot be read"):
        contents(path)


def test_a_member_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_archives, "LARGEST", 5)
    path = tmp_path / "set.tgz"
    path.write_bytes(tarball(FILES))
    with pytest.raises(UnreadableError, match=r"'set/deep/b.bin' of 6 bytes"):
        contents(path)


@pytest.mark.parametrize("unpacked", [True, False])
def test_members_are_compared_however_they_are_kept(published: PublishedFile, unpacked: bool) -> None:
    def keep(files: dict[str, bytes]) -> None:
        if unpacked:
            unpack(published.path.parent, files)
        else:
            published.path.write_bytes(gzip.compress(gzip.decompress(tarball(files)), 1))

    assert (published.kept, file_state(published).state) == (None, "missing")
    keep(FILES | {"set/unread": b"whatever"})
    assert published.kept == (published.path.with_name("set") if unpacked else published.path)
    assert dict(read_verified_members(published, published.kept)) == FILES
    assert file_state(published).state == "whole"
    keep(FILES | {"set/a.bin": b"other"})
    assert "was altered: the hash of set/a.bin begins" in (file_state(published).fault or "")


def test_what_lacks_a_member_is_told_with_the_fix(published: PublishedFile) -> None:
    published.path.write_bytes(tarball({"set/a.bin": b"first"}))
    with pytest.raises(UserError) as error:
        verify_file(published, published.path)
    fix = f"put the published set.tar.gz or what it unpacks to, set/, into {published.path.parent}"
    assert str(error.value) == f"{published.path} lacks set/deep/b.bin; {fix}"


def test_the_archive_comes_before_the_folder(published: PublishedFile) -> None:
    unpack(published.path.parent, {"set/a.bin": b"half of it"})
    published.path.write_bytes(tarball(FILES))
    assert file_state(published).state == "whole"


def test_members_are_parsed_and_parsed_anew_when_one_changes(published: PublishedFile) -> None:
    def parse(found: object) -> dict[str, object]:
        parsed.append(found)
        return {}

    parsed: list[object] = []
    unpack(published.path.parent, FILES)
    for _ in range(2):
        load_tensors([published], 1, parse)  # type: ignore[arg-type]
    assert parsed == [FILES]
    unpack(published.path.parent, {"set/deep/b.bin": b"changed"})
    with pytest.raises(UserError, match="was altered"):
        load_tensors([published], 1, parse)  # type: ignore[arg-type]


def test_a_folder_without_known_members_is_taken_as_it_is(folder: Path) -> None:
    published = PublishedFile("sample", "set.tgz", (), hashlib.sha256(b"").hexdigest(), 0, "set")
    unpack(folder / "sample", FILES)
    assert [state.state for state in fetch_files([published])] == ["unpacked"]


def test_what_is_published_no_longer_is_not_asked_for(published: PublishedFile) -> None:
    assert [state.state for state in fetch_files([published])] == ["missing"]
    with pytest.raises(UserError, match="is not here, and no longer published; put the published"):
        load_tensors([published], 1, lambda _: {})


def test_a_cut_archive_is_told_wherever_it_is_cut(published: PublishedFile) -> None:
    whole = tarball({"set/a.bin": random.Random(0).randbytes(4000), "set/deep/b.bin": b"second"})
    for length in (*range(40), *range(40, len(whole), 97), len(whole) - 4):
        published.path.write_bytes(whole[:length])
        assert file_state(published).state == "bad"


def named(kind: bytes, content: bytes) -> bytes:
    """A tarball that begins with a header of headers: a long name, or attributes."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, len(content)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(header, io.BytesIO(content))
        archive.addfile(tarfile.TarInfo("set/a.bin"))
    return gzip.compress(packed.getvalue())


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_take_little_memory(tmp_path: Path, kind: bytes) -> None:
    long = 2**23
    content = b"a" * long if kind in (b"L", b"K") else b"%d comment=" % long + b"a" * (long - 17) + b"\n"
    (tmp_path / "set.tgz").write_bytes(named(kind, content))
    with pytest.raises(UnreadableError, match="has a part of 8,388,6"):
        contents(tmp_path / "set.tgz")


def test_a_member_of_negative_size_does_not_lead_round_in_circles(tmp_path: Path) -> None:
    packed = bytearray(gzip.decompress(tarball({"set/a.bin": b""})))
    packed[124:136] = (2**96 - 512).to_bytes(12, "big")  # -512 in the format for large sizes
    packed[148:156] = b" " * 8
    packed[148:156] = b"%06o\0 " % sum(packed[:512])
    (tmp_path / "set.tgz").write_bytes(gzip.compress(packed))
    with pytest.raises(UnreadableError):
        contents(tmp_path / "set.tgz")


def test_an_archive_is_compared_with_its_hash_before_it_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("boolit.lab.datasets.images.archive.archive_entries", lambda path: opened.append(path) or iter(()))
    (folder / "caltech101").mkdir(parents=True)
    (folder / "caltech101" / "caltech-101.zip").write_bytes(b"PK hostile")
    with pytest.raises(UserError, match=r"caltech-101\.zip is cut off after 10 of"):
        Caltech101().load()
    assert opened == []
