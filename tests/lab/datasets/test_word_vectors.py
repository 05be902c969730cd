"""Vectors of words: from text or a zip file, means of several words, and what becomes of the missing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.datasets.composition.word_vectors import WordFile

LINES = "the 0 0 0\nold 1 2 3\nbear 3 4 5\nmoss-covered 7 7 7\nstone 1e0 -1 .5\n\u00fcber 9 9 9\n"


@pytest.fixture
def text(tmp_path: Path, folder: Path) -> Path:  # noqa: ARG001 (what is kept is kept in the test's own folder)
    path = tmp_path / "vectors.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def test_names_of_one_word_and_of_several(text: Path) -> None:
    found = WordFile(text).vectors(["Bear", "old bear", "old_bear", "moss-covered", "moss-covered stone", "\u00dcber"])
    assert found.tolist() == [[3, 4, 5], [2, 3, 4], [2, 3, 4], [7, 7, 7], [1, -1, 0.5], [9, 9, 9]]
    assert found.dtype == torch.float32


def test_a_line_that_counts_words_is_left_out(text: Path) -> None:
    text.write_text("2 3\n2 1 1 1\nold 1 2 3\n")
    assert WordFile(text).vectors(["2", "old"]).tolist() == [[1, 1, 1], [1, 2, 3]]


def test_a_member_of_a_zip_file(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "vectors.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", LINES)
    assert torch.equal(WordFile(packed, "inner.txt").vectors(["stone"]), WordFile(text).vectors(["stone"]))
    with pytest.raises(UserError, match=r"other\.txt in .*vectors\.zip cannot be read"):
        WordFile(packed, "other.txt").vectors(["stone"])
    packed.write_bytes(packed.read_bytes()[:50])
    with pytest.raises(UserError, match="cannot be read"):
        WordFile(packed, "inner.txt").vectors(["old"])


def test_what_was_read_once_is_kept_until_the_file_changes(text: Path) -> None:
    checked: list[int] = []
    words = WordFile(text, verify=lambda: checked.append(1))
    first = words.vectors(["old"])
    assert torch.equal(words.vectors(["old"]), first)
    assert checked == [1]
    text.write_text("old 5 6 7 8\n")
    assert words.vectors(["old"]).tolist() == [[5, 6, 7, 8]]
    assert checked == [1, 1]


def test_a_missing_name_is_an_error_or_random(text: Path) -> None:
    with pytest.raises(UserError, match=r"has no vector for 'fox' \(2 of 3 names\); add one, or set missing = 'random'"):
        WordFile(text).vectors(["fox", "old", "wet fox"])
    found = WordFile(text, missing="random").vectors(["fox", "old", "wet fox"])
    assert found[1].tolist() == [1, 2, 3]
    assert not torch.equal(found[0], found[2])
    assert torch.equal(WordFile(text, missing="random").vectors(["old", "fox"])[1], found[0])
    assert not torch.equal(WordFile(text, missing="random", seed=1).vectors(["fox", "old", "wet fox"])[0], found[0])


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("old 1 two 3\n", "line 1 of .* has more than a word and its numbers"),
        ("old 1 2 3\nbear 1 2\n", "line 2 of .* has 2 numbers, not 3 finite ones"),
        ("old 1 nan 3\n", "line 1 of .* has 3 numbers, not 3 finite ones"),
        ("old\n", "line 1 of .* has 0 numbers, not some finite ones"),
        ("fox 1 2 3\n", "has none of the 2 names, such as 'old'"),
        ("", "has none of the 2 names"),
    ],
)
def test_bad_files_are_told(text: Path, lines: str, fault: str) -> None:
    text.write_text(lines)
    with pytest.raises(UserError, match=fault):
        WordFile(text).vectors(["old", "bear"])


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there are no word vectors in .*nothing\.txt \(No such file or directory\)"):
        WordFile(tmp_path / "nothing.txt").vectors(["old"])


def test_a_line_without_end_is_not_read(text: Path) -> None:
    text.write_bytes(b"old 1 2 3\n" + b"x" * (2**20 + 1))
    with pytest.raises(UserError, match=r"line 2 of .* has more than 1,048,576 bytes"):
        WordFile(text).vectors(["old"])
