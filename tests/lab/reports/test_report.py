"""The report of a study: what its numbers cover, and that an unfinished one decides nothing."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boolit.cli._app import application
from boolit.lab.execute import execute
from boolit.lab.reports.figures.study import _best_of_each, choose_by
from boolit.lab.reports.page import write_report
from boolit.lab.results.statistics import BEST_SIZES, COVERAGE
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Record, Run
from boolit.lab.studies import Plan, load_study, plan

SETS = ["data.train=64", "data.test=32", "training.epochs=1", 'sweep.activation=["relu","xnor_nail"]']


@pytest.fixture
def half_done(tmp_path: Path) -> tuple[Plan, Path]:
    """A study of which one cohort of two is trained."""
    planned = plan(load_study("xor"), seeds=3, sets=SETS)
    with Store(tmp_path / "results") as store:
        execute(Plan(planned.name, planned.study, planned.cohorts[:1]), store, progress=False)
    return planned, tmp_path / "results"


def test_an_unfinished_study_says_so_first_and_gives_no_verdict(half_done: tuple[Plan, Path]) -> None:
    planned, folder = half_done
    with Store(folder) as store:
        report = write_report(store.records(), store, planned.study.title, planned.study.metric.solved, None, len(planned.runs))
    page = report.page.read_text("utf-8")
    main = page[page.index('<main id="main">') : page.index("</main>")]
    first = re.sub("<h2.*</h2>|<[^>]*>", "", main).strip().splitlines()[0]
    assert first.startswith("Unfinished: 3 of 6 runs are done; ")
    assert report.verdict == ""
    assert "is best" not in main
    assert 'class="verdict"' not in main
    for table in report.tables:
        assert table.title.startswith("Unfinished: ")
        assert not {"p", "difference", "effect"} & set(table.columns)
        assert not any(str(cell.marks) or cell.shade is not None for row in table.rows for cell in row.cells)
    assert (folder / "report" / "tables.md").read_text("utf-8").lstrip("#* ").startswith("Unfinished: ")


def test_a_finished_one_has_a_verdict_and_says_what_its_numbers_cover(tmp_path: Path) -> None:
    planned = plan(load_study("xor"), seeds=3, sets=SETS)
    with Store(tmp_path) as store:
        execute(planned, store, progress=False)
        report = write_report(store.records(), store, planned.study.title, None, None, len(planned.runs))
    page = report.page.read_text("utf-8")
    assert "is best" in report.verdict
    assert report.unfinished == ""
    assert "Unfinished" not in page
    assert COVERAGE in page
    assert BEST_SIZES not in page
    in_latex = COVERAGE.removeprefix("±")  # which has a command of its own for this sign
    assert all(in_latex in (tmp_path / "report" / f"tables.{kind}").read_text("utf-8") for kind in ("md", "tex"))


def test_the_choice_of_the_best_size_is_told(tmp_path: Path) -> None:
    planned = plan(load_study("xor"), seeds=2, sets=[*SETS, "sweep.width=[4,8]"])
    with Store(tmp_path) as store:
        execute(planned, store, progress=False)
        report = write_report(store.records(), store, planned.study.title)
    assert BEST_SIZES in report.page.read_text("utf-8")


def test_the_command_tells_both(half_done: tuple[Plan, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    _, folder = half_done
    command = ["run", "xor", "--seeds", "3", "--out", str(folder), *(word for each in SETS for word in ("--set", each))]
    with monkeypatch.context() as patched:
        patched.setattr("boolit.lab.execute._Execution._train", lambda *_: None)  # as if it was stopped at once
        told = json.loads(CliRunner().invoke(application(), [*command, "--json"]).stdout)
        assert (told["complete"], told["verdict"]) == (False, None)
        assert told["unfinished"].startswith("Unfinished: 3 of 6 runs are done; ")
        stopped = CliRunner().invoke(application(), command).stdout
        assert stopped.startswith("Unfinished: 3 of 6 runs are done; ")
        assert "is best" not in stopped
    told = json.loads(CliRunner().invoke(application(), [*command, "--json"]).stdout)
    assert (told["complete"], told["unfinished"], told["covers"]) == (True, None, COVERAGE)
    assert "is best" in told["verdict"]
    printed = CliRunner().invoke(application(), command).stdout
    assert COVERAGE in " ".join(printed.split())


def test_even_without_a_run_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boolit.lab.execute._Execution._train", lambda *_: None)
    command = ["run", "xor", "--seeds", "3", "--out", str(tmp_path), *(word for each in SETS for word in ("--set", each))]
    told = json.loads(CliRunner().invoke(application(), [*command, "--json"]).stdout)
    assert told["unfinished"].startswith("Unfinished: 0 of 6 runs are done; ")
    assert (told["verdict"], told["tables"], told["files"]) == (None, {}, [])


@pytest.mark.parametrize(("splits", "chosen"), [(("train", "test"), "train"), (("train", "valid", "test"), "valid")])
def test_test_rows_do_not_choose_what_is_drawn(splits: tuple[str, ...], chosen: str) -> None:
    def record(seed: int, good: float, test: float) -> Record:
        run = Run.from_dict({"activation": "relu", "seed": seed})
        return Record(run.key, run.config, "finished", {f"{s}_accuracy": test if s == "test" else good for s in splits})

    records = [record(0, 0.9, 0.5), record(1, 0.6, 1.0)]
    by = choose_by(records, Metric(name="accuracy"))
    assert by == Metric(name="accuracy", split=chosen)
    assert [each.config.seed for each in _best_of_each(records, by)] == [0]
