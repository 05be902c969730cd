"""``boolit compare`` and ``boolit predict`` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import boolit
from boolit.cli import _compare
from boolit.errors import UserError

SMALL = ("--activations", "relu, max", "--budget", "200", "--splits", "5", "--epochs", "2", "--rates", "0.01,0.1")


def run(*arguments: str | Path) -> tuple[str, str]:
    """Return the standard output and standard error of a command; its errors pass through."""
    app = typer.Typer()
    app.command("compare")(_compare.compare)
    app.command("predict")(_compare.predict)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_a_table_in_one_command(folder: Path, tmp_path: Path) -> None:
    arguments = ("compare", folder / "table.csv", "-t", "class", "--drop", "price", *SMALL, "--out", tmp_path / "out")
    out, err = run(*arguments)
    assert "Rows: 102 to train on, 26 to validate on, 32 to test on" in err
    assert "'leak' alone predicts the target" in err
    assert "Expected time" in err
    assert "gradient boosting" in out
    entry = json.loads(run(*arguments, "--json")[0])
    assert (entry["complete"], entry["summary"]["trained"]) == (True, 0)
    assert entry["verdict"] in " ".join(out.split())
    assert set(entry["comparison"]["scores"]) == {"relu", "max", "guessing", "linear model", "gradient boosting"}
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "gradient boosting" in page
    assert boolit.load(entry["model"]).about_["verdict"] == entry["verdict"]
    predictions, _ = run("predict", entry["model"], folder / "table.csv")
    assert predictions.splitlines()[0] == "class,P(big),P(small)"
    run("predict", entry["model"], folder / "table.csv", "--out", tmp_path / "answers.csv")
    assert len(pd.read_csv(tmp_path / "answers.csv")) == 160


def test_a_split_by_time_has_no_intervals(folder: Path, tmp_path: Path) -> None:
    arguments = ("compare", folder / "table.csv", "-t", "price", "--time", "since", *SMALL, "--out", tmp_path / "out")
    out, _ = run(*arguments)
    assert "Mean ± standard deviation over 5 seeds" in out
    assert "p vs guessing" not in out
    assert "significantly" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "clas"), "did you mean 'class'"),
        (("--target", "class", "--rates", "much"), "--rates much are not numbers"),
        ((), "needs --target"),
        (("--target", "price", "--metric", "roc_auc"), "--metric roc_auc cannot be computed"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], message: str, folder: Path) -> None:
    with pytest.raises(UserError, match=message):
        run("compare", folder / "table.csv", *arguments)
