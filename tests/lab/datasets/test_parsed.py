"""What was parsed is kept, mapped and renewed when the files change."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.datasets.download import fetch as _fetch
from boolit.lab.datasets.download.fetch import Tensors, load_tensors
from boolit.lab.datasets.download.published import PublishedFile

CONTENT = bytes(range(200))
Publish = Callable[..., PublishedFile]


class Parser:
    """Counts how often it parses."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, contents: Mapping[str, bytes]) -> Tensors:
        self.times += 1
        return {file: torch.frombuffer(bytearray(content), dtype=torch.uint8) for file, content in contents.items()}


@pytest.fixture
def published(publish: Publish) -> PublishedFile:
    return publish("sample", "file.gz", CONTENT)


def cache_of(published: PublishedFile) -> Path:
    (cache,) = (published.path.parent / "parsed").iterdir()
    return cache


def test_the_second_start_does_not_parse(published: PublishedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = Parser()
    first = load_tensors([published], 1, parser)
    monkeypatch.setattr(_fetch, "read_verified", None)  # nor does it read the file
    second = load_tensors([published], 1, parser)
    assert parser.times == 1
    assert torch.equal(first["file.gz"], second["file.gz"])
    assert second["file.gz"].tolist() == list(CONTENT)
    assert cache_of(published).suffix == ".safetensors"


def test_another_version_or_content_is_parsed_anew(published: PublishedFile, publish: Publish) -> None:
    parser = Parser()
    load_tensors([published], 1, parser)
    load_tensors([published], 2, parser)
    other = publish("sample", "file.gz", CONTENT[::-1])
    assert load_tensors([other], 2, parser)["file.gz"].tolist() == list(CONTENT[::-1])
    assert parser.times == 3


@pytest.mark.parametrize("touch", ["time", "size"])
def test_a_file_that_changed_is_verified_again(published: PublishedFile, touch: str) -> None:
    parser = Parser()
    load_tensors([published], 1, parser)
    if touch == "time":
        published.path.write_bytes(gzip.compress(CONTENT[::-1]))
        os.utime(published.path, ns=(0, 1))
    else:
        before = published.path.stat()
        published.path.write_bytes(published.path.read_bytes()[:-3])
        os.utime(published.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match="was altered" if touch == "time" else "is cut off"):
        load_tensors([published], 1, parser)


def test_the_same_file_copied_anew_is_parsed_again(published: PublishedFile) -> None:
    parser = Parser()
    load_tensors([published], 1, parser)
    os.utime(published.path, ns=(0, 1))
    load_tensors([published], 1, parser)
    load_tensors([published], 1, parser)
    assert parser.times == 2


def test_a_broken_cache_is_made_anew(published: PublishedFile) -> None:
    parser = Parser()
    load_tensors([published], 1, parser)
    cache = cache_of(published)
    cache.write_bytes(cache.read_bytes()[:-20])
    assert load_tensors([published], 1, parser)["file.gz"].tolist() == list(CONTENT)
    assert parser.times == 2
    load_tensors([published], 1, parser)
    assert parser.times == 2


def test_a_folder_one_cannot_write_to_still_works(published: PublishedFile) -> None:
    (published.path.parent / "parsed").write_text("no folder")  # even for those whom no permission stops
    parser = Parser()
    for _ in range(2):
        assert load_tensors([published], 1, parser)["file.gz"].tolist() == list(CONTENT)
    assert parser.times == 2


def test_a_write_that_fails_leaves_nothing(published: PublishedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert load_tensors([published], 1, Parser())["file.gz"].tolist() == list(CONTENT)
    assert list((published.path.parent / "parsed").iterdir()) == []


def test_the_tensors_are_mapped_and_may_be_written_to_without_harm(published: PublishedFile) -> None:
    parser = Parser()
    load_tensors([published], 1, parser)["file.gz"].zero_()
    assert load_tensors([published], 1, parser)["file.gz"].tolist() == list(CONTENT)
    assert parser.times == 1
