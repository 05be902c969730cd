"""``boolit compare`` and ``boolit predict`` as a user meets them."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import boolit
from boolit.cli import _compare
from boolit.cli._app import run as main
from boolit.errors import UserError
from boolit.lab.results.names import paper_name


def run(*arguments: str | Path) -> tuple[str, str]:
    """Standard output and standard error of a command; its errors pass through."""
    app = typer.Typer()
    app.command("compare")(_compare.compare)
    app.command("predict")(_compare.predict)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


SMALL = ("--activations", "relu, max", "--budget", "200", "--splits", "5", "--epochs", "2", "--layers", "1")


def test_a_table_in_one_command(folder: Path, tmp_path: Path) -> None:
    arguments = ("compare", folder / "classes.csv", "--target", "class", *SMALL, "--out", tmp_path / "out")
    out, err = run(*arguments)
    assert "Rows: 102 to train on, 26 to validate on, 32 to test on" in err
    assert "1 numeric, 1 true or false, 1 dates, 1 categories" in err
    assert "Splits: 5" in err
    assert "majority class" in out
    assert str(tmp_path / "out" / "best.safetensors") in out.replace("\n", "")
    entry = json.loads(run(*arguments, "--json")[0])
    assert (entry["complete"], entry["task"], entry["classes"]) == (True, "classify", ["no", "yes"])
    assert entry["summary"]["trained"] == 0
    assert entry["columns"] == {"size": "number", "colour": "category", "member": "flag", "since": "date"}
    assert set(entry["activations"]) == set(entry["parameters"]) == {"relu", "max"}
    assert Path(entry["saved"]["path"]).exists()
    predictions = run("predict", entry["saved"]["path"], folder / "classes.csv")[0].splitlines()
    assert predictions[0] == "class,P(no),P(yes)"
    assert len(predictions) == 161


def plain(text: str) -> str:
    return " ".join(text.split())


def test_terminal_report_json_and_model_tell_one_story(folder: Path, tmp_path: Path) -> None:
    arguments = ("compare", folder / "classes.csv", "--target", "class", *SMALL, "--out", tmp_path / "out")
    out = plain(run(*arguments)[0])
    entry = json.loads(run(*arguments, "--json")[0])
    page = html.unescape((tmp_path / "out" / "report" / "report.html").read_text())
    saved, model = entry["saved"], boolit.load(entry["saved"]["path"])
    for told in (out, page):
        assert entry["verdict"] in told
        assert saved["reason"] in told
        assert entry["covers"] in told
        assert (
            f"Saved: {paper_name(saved['activation'])}, expected accuracy on new rows: {100 * saved['expected']['mean']:.1f}"
            in told
        )
    assert model.description.activation == saved["activation"]
    assert (model.about["chosen"], model.about["expected"]) == (saved["reason"], saved["expected"])
    leader = max(entry["activations"], key=lambda name: entry["activations"][name]["mean"])
    assert (leader == saved["activation"]) != ("test rows choose no model" in saved["reason"])


def test_json_holds_the_numbers_behind_the_words(folder: Path, tmp_path: Path) -> None:
    arguments = ("compare", folder / "quantity.csv", "--target", "price", *SMALL, "--out", tmp_path / "out", "--json")
    entry = json.loads(run(*arguments)[0])
    assert entry["splits"] == {"number": 5, "tested": 32, "others": 128}
    assert entry["baseline"]["name"] == "target mean"
    assert (entry["metric"], entry["reference"]) == ("test_rmse", "relu")
    names = [*entry["activations"], "target mean"]
    assert {(pair["first"], pair["second"]) for pair in entry["pairs"]} == {
        ("relu", "max"),
        ("relu", "target mean"),
        ("max", "target mean"),
    }
    scores = {name: entry["activations"].get(name, entry["baseline"])["scores"] for name in names}
    for pair in entry["pairs"]:
        differences = [a - b for a, b in zip(scores[pair["first"]], scores[pair["second"]], strict=True)]
        assert pair["difference"]["mean"] == pytest.approx(sum(differences) / 5)
        assert pair["p_holm"] >= pair["p"] > 0
    assert set(entry["activations"]["relu"]["rates"]) == {"1", "2", "3", "4", "5"}


def test_rates_at_the_edge_are_told(folder: Path, tmp_path: Path) -> None:
    """With one rate, it is the highest and the lowest, and always chosen."""
    arguments = ("compare", folder / "classes.csv", "--target", "class", *SMALL, "--rates", "0.01", "--out", tmp_path / "out")
    out = plain(run(*arguments)[0])
    assert "The highest rate tried, 0.01, was chosen on most splits for Max, ReLU; a higher one may be better: --rates" in out
    with pytest.raises(UserError, match=r"--rates 0\.1;2 are not numbers"):
        run("compare", folder / "classes.csv", "--target", "class", "--rates", "0.1;2")


def test_the_folder_is_named_after_the_table(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data (1).csv").write_text((folder / "classes.csv").read_text())
    run("compare", "my data (1).csv", "--target", "class", *SMALL, "--json")
    assert (tmp_path / "results" / "my-data-1" / "best.safetensors").exists()


def test_a_wrong_task_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(folder / "classes.csv"), "--target", "class", "--task", "regres"]) == 2
    assert capsys.readouterr().err.startswith("error: --task 'regres' is not one of classify, regress; did you mean regress?")
