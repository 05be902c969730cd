"""Files from anywhere: devices and pipes are refused, and no parser takes more bytes than it may."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from boolit.errors import UserError
from boolit.lab.common.files import BoundedReader, TooLargeError, atomic_write, file_digest, read_array, read_bounded
from boolit.lab.datasets.features.weights import resnet18_weights
from boolit.lab.datasets.images.folder import ImageFolder, folder_digest
from boolit.lab.datasets.tables import open_table, table_digest
from boolit.lab.studies.files import load_study
from boolit.saved import SavedModelError, load

READERS: dict[str, Callable[[Path], object]] = {
    "table": open_table,
    "table's digest": table_digest,
    "study": load_study,
    "weights": resnet18_weights,
    "weights' digest": lambda path: file_digest(path, "file"),
    "model": load,
    "content": read_bounded,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_refused_and_not_opened(
    reader: Callable[[Path], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "given.toml"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    monkeypatch.setattr("io.open", None)  # a pipe nobody writes to blocks whoever opens it
    with pytest.raises((UserError, SavedModelError), match=r"given\.toml is a device, a pipe or a socket") as error:
        reader(path)
    assert "\n" not in str(error.value)


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(UserError, match="has more than 4 bytes"):
        read_bounded(path, 4)


def test_a_reader_is_bounded_in_one_read_and_in_all() -> None:
    reader = BoundedReader(io.BytesIO(bytes(100)), total=10, at_once=6, forwards=True)
    assert len(reader.read(6)) == 6
    for size in (7, -1):
        with pytest.raises(TooLargeError, match="at most 6 are read"):
            reader.read(size)
    with pytest.raises(TooLargeError, match="leads back"):
        reader.seek(0)
    with pytest.raises(TooLargeError, match="more headers"):
        reader.read(5)


@pytest.mark.parametrize("shape", [(10**14,), (10**10, 10**10), (-1, 5)])
def test_an_array_that_declares_more_than_there_is_takes_no_memory(shape: tuple[int, ...], tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("a.npy", member.getvalue())
    with pytest.raises(UserError, match=r"t\.npz is no readable \.npz of plain arrays") as error:
        open_table(tmp_path / "t.npz")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3)), np.array(["a", "bc"]), np.float32(2)]
)
def test_arrays_are_read_as_numpy_reads_them(array: np.ndarray) -> None:
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    found = read_array(file, 2**10)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


def test_names_that_are_not_utf8_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    for name in (b"caf\xe9", b"plain"):
        folder = tmp_path / "pictures" / os.fsdecode(name)
        folder.mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (9, 9), (number, 0, 0)).save(folder / os.fsdecode(b"\xff%d.png" % number))
    before = folder_digest(tmp_path / "pictures")
    loaded = ImageFolder(path=str(tmp_path / "pictures"), size=8, digest=before).load()
    assert sum(len(split) for split in loaded.splits.values()) == 20
    (tmp_path / "pictures" / "plain").rename(tmp_path / "pictures" / os.fsdecode(b"plain\xfe"))
    assert folder_digest(tmp_path / "pictures") != before


def test_a_table_whose_name_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"t\xff.csv")
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="is not UTF-8, as those of tables must be; rename it"):
        open_table(path)


def test_a_folder_of_pictures_whose_own_name_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"pictures\xff")
    path.mkdir()
    with pytest.raises(UserError, match="is not UTF-8, as only those of the images in it may be; rename it"):
        folder_digest(path)


def test_a_file_gets_its_name_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path) as part, part.open("w") as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("folder", [False, True])
def test_what_was_not_finished_is_deleted(folder: bool, tmp_path: Path) -> None:
    def write() -> None:
        with atomic_write(tmp_path / "file") as part:
            if folder:
                part.mkdir()
            (part / "in" if folder else part).write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert os.listdir(tmp_path) == []


def test_several_may_write_at_once_and_the_first_whole_folder_stays(tmp_path: Path) -> None:
    with (
        atomic_write(tmp_path / "folder") as late,
        atomic_write(tmp_path / "file") as first,
        atomic_write(tmp_path / "file") as own,
    ):
        with atomic_write(tmp_path / "folder") as part:
            part.mkdir()
            (part / "early").touch()
        late.mkdir()
        (late / "late").touch()
        assert first != own
        first.write_text("first")
        own.write_text("own")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["file", "folder", "folder/early"]
