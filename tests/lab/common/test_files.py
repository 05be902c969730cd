"""Hashes of files and atomic writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key, data_folder, file_digest


def test_a_digest_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    first = file_digest(path, "file")
    path.write_bytes(b"12")
    assert file_digest(path, "file") != first
    with pytest.raises(UserError, match=r"the weights file .*nothing cannot be read"):
        file_digest(tmp_path / "nothing", "weights file")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as part:
        part.write_text(str(1 / 0))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "before")]
    with atomic_write(path) as part:
        part.write_text("after")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "after")]


def test_the_first_of_two_folders_wins(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with atomic_write(tmp_path / "folder") as part:
            part.mkdir()
            (part / "file").write_text(text)
    assert (tmp_path / "folder" / "file").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_data_folder_is_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("BOOLIT_DATA")
    assert data_folder().name == "boolit"


def test_cache_keys_take_names_that_are_not_utf_8() -> None:
    assert cache_key("caf\udce9.png") != cache_key("cafe.png")
