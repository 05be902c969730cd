"""Problems as files: what is in them, and that they are made once, whole and the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from boolit.errors import UserError
from boolit.lab.datasets.raven import files
from boolit.lab.datasets.raven.configurations import CONFIGURATIONS
from boolit.lab.datasets.raven.drawing import draw_problem
from boolit.lab.datasets.raven.files import file_name, generate, missing_problems, read_problem, split_of
from boolit.lab.datasets.raven.problems import make_problem

KEYS = {"image", "target", "predict", "meta_matrix", "meta_target", "structure", "meta_structure"}
TWO = ["center_single", "up_center_single_down_center_single"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_splits_are_6000_2000_2000() -> None:
    splits = [split_of(index) for index in range(10_000)]
    assert [splits.count(name) for name in ("train", "val", "test")] == [6000, 2000, 2000]
    assert splits[:10] == ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    assert files.NAME.fullmatch(file_name(9_998))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_file_holds_the_problem(name: str, tmp_path: Path) -> None:
    generate(tmp_path, [name], 9, 5)
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == sorted(map(file_name, range(9)))
    made = make_problem(name, 5, 8)
    with np.load(tmp_path / name / "RAVEN_8_test.npz", allow_pickle=False) as file:
        assert set(file.files) == KEYS
        assert (file["image"] == draw_problem(made)).all()
        assert (file["image"].dtype, file["image"].shape) == (np.uint8, (16, 160, 160))
        assert file["target"] == file["predict"] == made.target
        assert (file["target"].shape, file["target"].dtype.kind) == ((), "i")
        assert (file["meta_matrix"].shape, file["meta_matrix"].dtype) == ((8, 9), np.uint8)
        assert (file["meta_target"] == file["meta_matrix"].max(0)).all()
        assert (file["structure"].dtype.kind, file["structure"][0]) == ("U", "Scene")
        assert (file["meta_structure"].shape, file["meta_structure"].dtype) == ((21,), np.uint8)
    image, target = read_problem(tmp_path / name / "RAVEN_8_test.npz")
    assert (image == draw_problem(made)).all()
    assert target == made.target


def test_only_what_is_missing_is_made_and_it_is_the_same(tmp_path: Path) -> None:
    counted: list[int] = []
    assert generate(tmp_path, TWO, 6, 1, counted.append) == 12
    assert sum(counted) == 12
    before = contents(tmp_path)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    (tmp_path / TWO[0] / file_name(3)).unlink()
    assert missing_problems(tmp_path, TWO[0], 6) == [3]
    assert generate(tmp_path, TWO, 6, 1) == 1
    assert contents(tmp_path) == before
    assert sum(path.stat().st_mtime_ns != old for path, old in times.items()) == 1
    assert generate(tmp_path, TWO, 8, 1) == 4
    assert generate(tmp_path, TWO, 8, 1) == 0


def test_processes_make_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(tmp_path / "one", TWO, 6, 2)
    generate(tmp_path / "other", TWO[:1], 6, 3)
    assert contents(tmp_path / "other").items().isdisjoint(contents(tmp_path / "one").items())
    monkeypatch.setattr(files, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(files, "TOGETHER", 2)
    monkeypatch.setattr(files, "processors", lambda: 2)
    generate(tmp_path / "two", TWO, 6, 2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_killed_process_leaves_whole_files_only(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from boolit.lab.datasets.raven.files import ProblemBatch, write_problems\n"
        "write_problems(ProblemBatch(Path(sys.argv[1]), 'center_single', 1, tuple(range(10_000))))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as child:
        until = time.monotonic() + 300
        while time.monotonic() < until and len(list(tmp_path.rglob("*.npz"))) < 8:
            time.sleep(0.05)
        child.kill()
    made = sorted(tmp_path.rglob("*.npz"))
    assert len(made) >= 8
    for path in made:
        read_problem(path)


def test_what_a_killed_process_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    folder = tmp_path / TWO[0]
    folder.mkdir()
    old, young = folder / ".RAVEN_0_train.npz.1.part", folder / ".RAVEN_1_train.npz.2.part"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (0, 0))
    generate(tmp_path, TWO[:1], 2, 1)
    assert not old.exists()
    assert young.exists()


def test_a_problem_with_another_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "solve", lambda _: [0, 1])
    with pytest.raises(RuntimeError, match=r"problem 0 of center_single with seed 9 is solved by the candidates \[0, 1\]"):
        generate(tmp_path, TWO[:1], 3, 9)
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        (lambda whole: whole[: len(whole) // 2], "not a zip file"),
        (lambda _: b"", "not a zip file"),
        (lambda whole: whole.replace(b"image.npy", b"imago.npy"), "no item named 'image.npy'"),
        (lambda whole: whole[:2000] + b"\0" * 2000 + whole[4000:], "RAVEN_0_train"),
    ],
)
def test_a_broken_file_is_named(spoiled: object, said: str, tmp_path: Path) -> None:
    assert callable(spoiled)
    generate(tmp_path, TWO[:1], 1, 1)
    path = tmp_path / TWO[0] / file_name(0)
    path.write_bytes(spoiled(path.read_bytes()))
    with pytest.raises(UserError, match=r"RAVEN_0_train\.npz is no problem of I-RAVEN .*delete it") as error:
        read_problem(path)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("image", "target", "said"),
    [
        (np.zeros((16, 80, 80), np.uint8), 0, "of shape (16, 80, 80), not uint8 of (16, 160, 160)"),
        (np.zeros((16, 160, 160), np.float32), 0, "float32"),
        (np.zeros((16, 160, 160), np.uint8), 8, "its target is 8, not one of 0 to 7"),
    ],
)
def test_other_contents_are_refused(image: npt.NDArray[np.generic], target: int, said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "RAVEN_0_train.npz", image=image, target=target)
    with pytest.raises(UserError, match=r"RAVEN_0_train\.npz is no problem") as error:
        read_problem(tmp_path / "RAVEN_0_train.npz")
    assert said in str(error.value)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "RAVEN_0_train.npz", image=np.array([print], dtype=object), target=0)
    with pytest.raises(UserError, match="RAVEN_0_train"):
        read_problem(tmp_path / "RAVEN_0_train.npz")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "center_single").write_text("a file")
    with pytest.raises(UserError, match=r"cannot be written to .*center_single .*choose another folder"):
        generate(tmp_path, TWO[:1], 1, 1)


def test_an_unknown_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'centre' is not a configuration of I-RAVEN"):
        generate(tmp_path, ["centre"], 1, 1)
