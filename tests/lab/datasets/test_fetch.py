"""Files are fetched whole or not at all, and what is wrong with one is said in a sentence."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from boolit.errors import UserError
from boolit.lab.common.progress import byte_progress
from boolit.lab.datasets.download.fetch import FileBar, fetch, fetch_missing
from boolit.lab.datasets.download.published import PublishedFile, read_verified, verify_file

CONTENT = bytes(range(256)) * 400
NOWHERE = "http://127.0.0.1:9/file"  # the port of the discard service, where nobody answers
Publish = Callable[..., PublishedFile]


def named_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("level", [0, 9])
def test_how_a_file_was_packed_does_not_matter(publish: Publish, level: int) -> None:
    published = publish("sample", "file.gz", CONTENT)
    published.path.write_bytes(gzip.compress(CONTENT, level))
    assert read_verified(published, published.path) == CONTENT


def test_a_file_that_is_not_packed_is_read_as_it_is(publish: Publish) -> None:
    published = publish("sample", "file.json", CONTENT)
    assert read_verified(published, published.path) == CONTENT


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda packed: packed[: len(packed) // 2], "is cut off in the middle of its gzip stream"),
        (lambda packed: b"<html>" + packed, "is no whole gzip file"),
        (lambda packed: packed[:60] + bytes([packed[60] ^ 255]) + packed[61:], "is no whole gzip file"),
        (lambda _: gzip.compress(CONTENT[:-5]), "is cut off after 102,395 of 102,400 bytes"),
        (lambda _: gzip.compress(CONTENT + b"more"), "holds more than the published 102,400 bytes"),
        (lambda _: gzip.compress(b"\1" + CONTENT[1:]), "was altered"),
        (lambda _: b"", "is cut off after 0 of 102,400 bytes"),
    ],
)
def test_a_bad_file_is_named_with_its_fault_and_the_fix(publish: Publish, damage: Callable[[bytes], bytes], fault: str) -> None:
    published = publish("sample", "file.gz", CONTENT)
    published.path.write_bytes(damage(published.path.read_bytes()))
    with pytest.raises(UserError) as error:
        verify_file(published, published.path)
    message = str(error.value)
    assert message.startswith(f"{published.path} {fault}")
    assert "run `boolit data fetch sample`, or put the published file.gz into" in message
    assert "\n" not in message


def test_a_folder_in_the_place_of_a_file_cannot_be_read(publish: Publish) -> None:
    published = publish("sample", "file.json", CONTENT, here=False)
    published.path.mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be read"):
        verify_file(published, published.path)


def test_a_download_is_whole_and_alone(publish: Publish, pages: Any, folder: Path) -> None:
    published = publish("sample", "file.gz", CONTENT, (pages.url("/a"),), here=False)
    pages["/a"] = gzip.compress(CONTENT)
    fetch(published)
    assert read_verified(published, published.path) == CONTENT
    assert named_files(folder) == ["file.gz"]


def test_mirrors_are_tried_in_order(publish: Publish, pages: Any) -> None:
    urls = (NOWHERE, pages.url("/lost"), pages.url("/other"), pages.url("/right"), pages.url("/unused"))
    published = publish("sample", "file.gz", CONTENT, urls, here=False)
    pages["/other"], pages["/right"] = gzip.compress(b"an error page"), gzip.compress(CONTENT)
    fetch(published)
    assert pages.asked == ["/lost", "/other", "/right"]
    verify_file(published, published.path)


def test_without_a_network_one_sentence_says_what_to_do(publish: Publish, pages: Any, folder: Path) -> None:
    published = publish("sample", "file.gz", CONTENT, (NOWHERE, pages.url("/lost")), here=False)
    with pytest.raises(UserError) as error:
        fetch(published)
    assert str(error.value) == (
        f"file.gz of sample could not be downloaded to {folder / 'sample'} (127.0.0.1: ConnectionError; 127.0.0.1: HTTP status "
        f"404); with a network, run `boolit data fetch sample`, or put the published file.gz into {folder / 'sample'}"
    )
    assert named_files(folder) == []


def test_a_connection_that_breaks_off_leaves_nothing(publish: Publish, pages: Any, folder: Path) -> None:
    published = publish("sample", "file.gz", CONTENT, (pages.url("/a"),), here=False)
    pages["/a"] = gzip.compress(CONTENT, 0)
    pages.cut.add("/a")
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(published)
    assert named_files(folder) == []


def test_an_interrupt_leaves_nothing(publish: Publish, pages: Any, folder: Path) -> None:
    class Interrupting(FileBar):
        def update(self, _: int) -> None:
            assert named_files(folder)[0].endswith(".part")
            raise KeyboardInterrupt

    published = publish("sample", "file.gz", CONTENT, (pages.url("/a"),), here=False)
    pages["/a"] = gzip.compress(CONTENT, 0)
    with byte_progress() as bars, pytest.raises(KeyboardInterrupt):
        fetch(published, Interrupting(bars, "file"))
    assert named_files(folder) == []


def test_a_failed_download_leaves_the_old_copy(publish: Publish, pages: Any) -> None:
    published = publish("sample", "file.gz", CONTENT, (pages.url("/lost"),))
    before = published.path.read_bytes()
    with pytest.raises(UserError):
        fetch(published)
    assert published.path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_told(publish: Publish, folder: Path) -> None:
    published = publish("sample", "file.gz", CONTENT, (NOWHERE,), here=False)
    folder.write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"could not be downloaded.*(Not a directory|File exists)"):
        fetch(published)


def test_only_what_is_missing_is_fetched(publish: Publish, pages: Any) -> None:
    there = publish("sample", "there.gz", CONTENT, (pages.url("/there"),))
    missing = publish("sample", "missing.gz", CONTENT, (pages.url("/missing"),), here=False)
    pages["/missing"] = gzip.compress(CONTENT)
    fetch_missing([there, missing])
    assert pages.asked == ["/missing"]


def test_the_bar_shows_the_bytes_that_came(publish: Publish, pages: Any) -> None:
    screen = io.StringIO()
    pages["/a"] = gzip.compress(CONTENT, 0)
    published = publish("sample", "file.gz", CONTENT, (pages.url("/a"),), here=False)
    with byte_progress(Console(file=screen, force_terminal=True, width=120)) as bars:
        bar = FileBar(bars, "file.gz")
        fetch(published, bar)
        assert bar.total == len(pages["/a"])
        assert bars.finished
    assert "file.gz" in screen.getvalue()


def test_nothing_is_drawn_where_there_is_no_terminal() -> None:
    screen = io.StringIO()
    with byte_progress(Console(file=screen)) as bars:
        FileBar(bars, "file.gz").update(3)
    assert screen.getvalue() == ""
