"""MATLAB files that nobody vouches for are read by another process: its crash, its time and its memory are one line here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from boolit.errors import UserError
from boolit.lab.datasets.download import mat as _mat
from boolit.lab.datasets.download.mat import read_records
from boolit.lab.datasets.images.photographs import read_annotations

FIELDS = ("fname", "class")


def mat(**variables: Any) -> bytes:
    file = io.BytesIO()
    savemat(file, variables, do_compression=True)
    return file.getvalue()


def annotations(*numbers: object) -> bytes:
    rows = [(f"{place}.jpg", number) for place, number in enumerate(numbers)]
    return mat(annotations=np.array(rows, dtype=[("fname", object), ("class", object)]))


def test_records_come_back_from_the_other_process() -> None:
    assert read_records(annotations(5, 196), "annotations", FIELDS, "a.mat") == [["0.jpg", 5], ["1.jpg", 196]]
    assert read_annotations("train", annotations(5, 196), "a.mat") == [("train/0.jpg", 4), ("train/1.jpg", 195)]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is no whole MATLAB file of annotations"),
        (annotations(5)[:-20], "is no whole MATLAB file of annotations"),
        (annotations(5)[:-1] + bytes([annotations(5)[-1] ^ 1]), "incorrect data check"),  # zlib's checksum is the last of it
        (mat(other=1), "it has no variable annotations"),
        (mat(annotations=np.eye(3)), "is no whole MATLAB file of annotations"),
        (annotations(1.5), "no texts and whole numbers"),
        (annotations(197), "has a class that is none of 1 to 196"),
        (annotations("x"), "has a class that is none of 1 to 196"),
    ],
)
def test_another_file_is_one_line(content: bytes, fault: str) -> None:
    with pytest.raises(UserError, match=fault) as error:
        read_annotations("train", content, "a.mat")
    assert str(error.value).startswith("a.mat ")
    assert "\n" not in str(error.value)


def test_a_crash_of_the_reader_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "child.py").write_text("import os; os.abort()")
    monkeypatch.setattr(_mat, "CHILD", tmp_path / "child.py")
    with pytest.raises(UserError, match=r"its reader ended with -\d"):
        read_annotations("train", annotations(5), "a.mat")


def test_the_time_of_the_reader_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "child.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(_mat, "CHILD", tmp_path / "child.py")
    monkeypatch.setattr(_mat, "SECONDS", 0.2)
    with pytest.raises(UserError, match=r"it takes more than 0\.2 s"):
        read_annotations("train", annotations(5), "a.mat")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much a process has")
def test_the_memory_of_the_reader_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mat, "BYTES", 2**25)
    bomb = mat(annotations=np.zeros(2**27, np.uint8))
    assert len(bomb) < 2**18
    with pytest.raises(UserError, match="MemoryError"):
        read_annotations("train", bomb, "a.mat")
