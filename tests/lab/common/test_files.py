"""Files from anywhere: devices and pipes are refused, large ones too, and writing is atomic."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key, data_folder, file_digest, read_bounded
from boolit.lab.datasets.embeddings import read_encoder
from boolit.lab.studies import load_study

READERS: dict[str, Callable[[Path], object]] = {
    "study": load_study,
    "weights": read_encoder,
    "digest": lambda path: file_digest(path, "file"),
    "content": read_bounded,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_refused_and_not_opened(
    reader: Callable[[Path], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "given.toml"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    monkeypatch.setattr("io.open", None)  # opening a pipe that nobody writes to would block
    with pytest.raises(UserError, match=r"given\.toml is a device, a pipe or a socket"):
        reader(path)


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(UserError, match="has more than 4 bytes"):
        read_bounded(path, 4)


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
