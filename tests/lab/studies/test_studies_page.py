"""The code of docs/studies.md runs."""

import json
import re
from pathlib import Path

import pytest

from boolit.cli._app import run
from boolit.lab.studies import load_study, plan
from boolit.lab.training import train

PAGE = (Path(__file__).parents[3] / "docs" / "studies.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_is_a_study(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "example.toml").write_text(text)
    file = load_study(tmp_path / "example.toml")
    assert len(plan(file, "paper").runs) == 240


def test_the_example_runs_from_a_file_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = blocks("toml")
    (tmp_path / "example.toml").write_text(text)
    small = ["--seeds", "2", "--set", "training.epochs=1", "--set", "data.train=64", "--set", "data.test=64"]
    monkeypatch.chdir(tmp_path)
    assert run(["run", "example.toml", "--json", *small]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["trained"] == 4
    assert (tmp_path / "results" / "example" / "report").is_dir()


def test_a_dataset_and_a_model_of_ones_own(tmp_path: Path) -> None:
    for block in blocks("python"):
        exec(compile(block, "docs/studies.md", "exec"), {"__name__": "studies_page"})
    text = blocks("toml")[0].replace('"parity"', '"ring"').replace('"mlp"', '"perceptron"')
    (tmp_path / "example.toml").write_text(text.replace("[[4, 2]]", "[4]"))
    planned = plan(load_study(tmp_path / "example.toml"), "paper", seeds=2, sets=["training.epochs=1"])
    finished = train(planned.cohorts[0].job())
    assert finished is not None
    assert finished.outcomes[0].metrics["parameters"] == 3
