"""``boolit compare`` and ``boolit predict`` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from boolit.cli import _compare
from boolit.lab.errors import UserError


def run(*arguments: str | Path) -> tuple[str, str]:
    """Standard output and standard error of a command; its errors pass through."""
    app = typer.Typer()
    app.command("compare")(_compare.compare)
    app.command("predict")(_compare.predict)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


SMALL = ("--activations", "relu, max", "--budget", "200", "--seeds", "2", "--epochs", "2", "--layers", "1")


def test_a_table_in_one_command(folder: Path, tmp_path: Path) -> None:
    arguments = ("compare", folder / "classes.csv", "--target", "class", *SMALL, "--out", tmp_path / "out")
    out, err = run(*arguments)
    assert "Rows: 102 to train on, 26 to validate on, 32 to test on" in err
    assert "1 numeric, 1 true or false, 1 dates, 1 categories" in err
    assert "Learning rates, by validation: relu " in out
    assert "best" in out
    assert str(tmp_path / "out" / "best.safetensors") in out.replace("\n", "")
    entry = json.loads(run(*arguments, "--json")[0])
    assert (entry["complete"], entry["task"], entry["classes"]) == (True, "classify", ["no", "yes"])
    assert entry["summary"]["trained"] == 0
    assert entry["columns"] == {"size": "number", "colour": "category", "member": "flag", "since": "date"}
    assert set(entry["rates"]) == set(entry["parameters"]) == {"relu", "max"}
    assert Path(entry["best"]["path"]).exists()
    predictions = run("predict", entry["best"]["path"], folder / "classes.csv")[0].splitlines()
    assert predictions[0] == "class,P(no),P(yes)"
    assert len(predictions) == 161


def test_the_folder_is_named_after_the_table(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data (1).csv").write_text((folder / "classes.csv").read_text())
    run("compare", "my data (1).csv", "--target", "class", *SMALL, "--json")
    assert (tmp_path / "runs" / "my-data-1" / "best.safetensors").exists()


def test_a_wrong_task_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match="--task guess"):
        run("compare", folder / "classes.csv", "--target", "class", "--task", "guess")
