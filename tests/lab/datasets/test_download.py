"""Downloads are verified, and copies placed by hand are compared by their content."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boolit.errors import UserError
from boolit.lab.datasets.download import PublishedFile, fetch, read_contents

CONTENT = b"some published content" * 100


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def place(published: PublishedFile, content: bytes) -> None:
    published.path.parent.mkdir(parents=True, exist_ok=True)
    published.path.write_bytes(content)


@pytest.mark.parametrize("hash_", [sha256(CONTENT), f"md5:{hashlib.md5(CONTENT).hexdigest()}", ""])
def test_a_missing_file_is_downloaded_once(pages: Any, folder: Path, hash_: str) -> None:
    pages["/file.txt"] = CONTENT
    published = pages.file("/file.txt", hash_)
    assert fetch(published) == folder / "sample" / "file.txt"
    assert fetch(published).read_bytes() == CONTENT
    assert pages.asked == ["/file.txt"]


def test_a_mirror_stands_in_and_every_failure_is_told(pages: Any, folder: Path) -> None:
    pages["/altered.txt"], pages["/cut.txt"] = b"something else", CONTENT
    pages.cut.add("/cut.txt")
    bad = tuple(f"{pages.address}/{name}" for name in ("missing.txt", "altered.txt", "cut.txt"))
    published = PublishedFile("sample", "file.txt", sha256(CONTENT), bad)
    with pytest.raises(UserError) as error:
        fetch(published)
    assert str(error.value).count("127.0.0.1: ") == 3
    assert "127.0.0.1: 404 Client Error" in str(error.value)
    assert "does not match the known hash" in str(error.value)
    assert f"run `boolit fetch sample`, or put file.txt into {folder / 'sample'}" in str(error.value)
    assert not published.path.exists()
    pages["/good.txt"] = CONTENT
    assert fetch(replace(published, urls=(*bad, f"{pages.address}/good.txt"))).read_bytes() == CONTENT


@pytest.mark.usefixtures("folder")
def test_a_file_without_an_address_is_to_be_fetched_by_hand() -> None:
    published = PublishedFile("sample", "a.tgz", unpacked="a", source="somewhere")
    with pytest.raises(UserError, match=r"a.tgz of sample has to be fetched by hand; put a.tgz or the folder a/ .*somewhere"):
        fetch(published)


@pytest.mark.usefixtures("folder")
def test_a_repacked_copy_is_compared_by_its_content() -> None:
    published = PublishedFile("sample", "a.gz", sha256(b"another packing"), content=sha256(CONTENT))
    place(published, gzip.compress(CONTENT, 1))
    assert read_contents([published]) == {"a.gz": CONTENT}
    for damaged, fault in (
        (gzip.compress(CONTENT[1:]), "is not as published: the content of a.gz has another hash"),
        (gzip.compress(CONTENT)[:-9], "cannot be read"),
        (b"not gzip", "cannot be read"),
    ):
        place(published, damaged)
        with pytest.raises(UserError, match=rf"a\.gz .*{fault}"):
            read_contents([published])


def tarball(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_and_its_folder_are_read_alike_and_nothing_is_unpacked(folder: Path) -> None:
    published = PublishedFile("sample", "a.tar.gz", unpacked="a", members={"a/one": "", "a/two": ""})
    place(published, tarball({"a/one": b"1", "./a/two": b"2", "../evil": b"3"}))
    assert read_contents([published]) == {"a/one": b"1", "a/two": b"2"}
    assert [path.name for path in (folder / "sample").iterdir()] == ["a.tar.gz"]
    published.path.unlink()
    for name in ("one", "two"):
        path = folder / "sample" / "a" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1" if name == "one" else b"2")
    assert read_contents([published]) == {"a/one": b"1", "a/two": b"2"}
    with pytest.raises(UserError, match="lacks a/three"):
        read_contents([replace(published, members={"a/three": ""})])


@pytest.mark.usefixtures("folder")
def test_a_damaged_archive_is_refused() -> None:
    published = PublishedFile("sample", "a.tar.gz", members={"a": ""})
    for content in (b"", b"not an archive", tarball({"a": CONTENT})[:-60]):
        place(published, content)
        with pytest.raises(UserError, match=r"a\.tar\.gz is not a whole archive|lacks a"):
            read_contents([published])
