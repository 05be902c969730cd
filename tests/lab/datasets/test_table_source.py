"""A table as the data of a study."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.datasets import load, source
from boolit.lab.studies import load_study, plan

STUDY = """
title = "Mine"
[data]
name = "table"
path = {path!r}
target = "y"
[model]
name = "mlp"
[sweep]
activation = ["relu"]
width = 4
seeds = 1
[training]
epochs = 1
batch = 8
patience = 1
[metric]
name = "{metric}"
[profiles.quick]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    return tmp_path / "t.csv"


@pytest.mark.parametrize(
    ("target", "task", "outputs", "dtype", "shape"),
    [
        (lambda i: i % 2, "binary", 1, torch.float32, (32, 1)),
        (lambda i: "abc"[i % 3], "classes", 3, torch.int64, (32,)),
        (lambda i: i / 7, "regression", 1, torch.float32, (32, 1)),
    ],
)
def test_tasks(path: Path, target: object, task: str, outputs: int, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert callable(target)
    path.write_text("x,y\n" + "".join(f"{i * 37 % 50},{target(i)}\n" for i in range(50)))
    dataset = load(source({"name": "table", "path": str(path), "target": "y"}))
    assert (dataset.task, dataset.outputs, dataset.inputs) == (task, outputs, (1,))
    assert (dataset.splits["train"].y.dtype, tuple(dataset.splits["train"].y.shape)) == (dtype, shape)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 32, "valid": 8, "test": 10}


def test_a_study_file_may_name_a_table_and_its_keys_follow_the_contents(path: Path, tmp_path: Path) -> None:
    def key() -> str:
        study = tmp_path / "mine.toml"
        study.write_text(STUDY.format(path=str(path), metric="rmse"))
        return plan(load_study(study)).runs[0].key

    path.write_text("x,y\n" + "".join(f"{i * 37 % 50},{i / 7}\n" for i in range(50)))
    first = key()
    path.write_text("x,y\n" + "".join(f"{i * 37 % 50},{i / 8}\n" for i in range(50)))
    assert key() != first


def test_a_table_that_changed_is_not_taken_for_the_old_one(path: Path) -> None:
    path.write_text("x,y\n" + "".join(f"{i * 37 % 50},{i / 7}\n" for i in range(50)))
    known = source({"name": "table", "path": str(path), "target": "y"})
    path.write_text("x,y\n" + "".join(f"{i * 37 % 50},{i / 8}\n" for i in range(50)))
    with pytest.raises(UserError, match="contents changed"):
        known.load()


def test_an_absent_file_is_told_with_the_line(tmp_path: Path) -> None:
    study = tmp_path / "mine.toml"
    study.write_text(STUDY.format(path="nowhere.csv", metric="rmse"))
    with pytest.raises(UserError, match=r"there is no table nowhere\.csv"):
        load_study(study)
