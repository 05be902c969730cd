"""The example project of docs/examples/own-study, and what its user sees: search, watch, charts, progress."""

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from rich.console import Console

import boolit as boolit_package
from boolit.lab import Store, load_study, plan
from boolit.lab.execute import execute, local
from boolit.lab.execute.local import StudyProgress
from boolit.lab.execute.loggers import call_logger
from boolit.lab.reports.server import progress_line
from boolit.lab.reports.tables import Table, to_latex
from boolit.lab.studies import save
from boolit.nn import Custom, register

PROJECT = Path(__file__).parents[2] / "docs" / "examples" / "own-study"


def boolit(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "boolit", "--plugin", "plugin.py", *map(str, arguments)]
    source = str(Path(boolit_package.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_project_runs_and_its_charts_are_written(tmp_path: Path) -> None:
    text = boolit("run", "study.toml", "--seeds", "2", "--set", "training.epochs=2", "--log", "csv", "--out", tmp_path)
    assert "test balanced (%)" in text
    assert "scaled_xnor" in text
    assert len(list((tmp_path / "logs" / "csv").iterdir())) == 6
    boolit("report", tmp_path, "--charts", "png", "--charts", "svg", "--charts", "pdf")
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    for suffix, start in starts.items():
        assert (tmp_path / "report" / f"curves.{suffix}").read_bytes().startswith(start)


@pytest.mark.check
def test_the_example_project_gives_the_same_runs_on_workers(tmp_path: Path) -> None:
    common = ("run", "study.toml", "--seeds", "2", "--set", "training.epochs=2", "--log", "csv")
    boolit(*common, "--out", tmp_path / "here")
    boolit(*common, "--out", tmp_path / "workers", "--workers", "2")
    here, there = (Store(tmp_path / name).frame().set_index("key").sort_index() for name in ("here", "workers"))
    pd.testing.assert_series_equal(here["test_balanced"], there["test_balanced"], atol=0.02)
    files = [sorted(path.name for path in (tmp_path / name / "logs" / "csv").iterdir()) for name in ("here", "workers")]
    assert files[0] == files[1]


def test_a_search_names_the_plugin_and_counts_nothing_as_solved(tmp_path: Path) -> None:
    length = ("--rounds", "1", "--trials", "5", "--seeds", "2", "--set", "training.epochs=1", "-a", "relu")
    text = boolit("search", "study.toml", *length, "--out", tmp_path)
    hparams = tmp_path / "hparams.toml"
    assert f"boolit --plugin plugin.py run study.toml --hparams {hparams}" in text.replace("\n", "")
    assert "solved" not in text
    assert "sharpness" in text
    assert "2 runs" in boolit("run", "study.toml", "--hparams", hparams, "-a", "relu", "--seeds", "2", "--dry-run")


def test_names_of_plugins_are_escaped_in_latex() -> None:
    register("my_own_relu", lambda dim: Custom(lambda x: x.relu(), dim, name="my_own_relu"))
    text = to_latex(Table.from_frame("My_title", pd.DataFrame({"a_b": [1.0]}, index=["my_own_relu"])))
    assert r"my\_own\_relu" in text
    assert r"a\_b" in text
    assert "my_own" not in text


def test_watch_counts_as_the_terminal_and_says_when_nobody_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PROGRESS_SECONDS", 0.0)
    planned = plan(load_study("xor"), seeds=4, sets=["sweep.activation=['relu', 'xnor_ail']", "training.epochs=2"])
    lines: list[str] = []

    with Store(tmp_path) as store:
        save(planned, tmp_path)
        assert progress_line(tmp_path) == "0 of 8 runs. Nobody is working on it; the same command resumes."
        execute(planned, store, progress=False, loggers=[call_logger(lambda *_: lines.append(progress_line(tmp_path)))])
    assert lines[0].startswith("2 of 8 runs")  # half of the epochs of four runs
    assert "runs/s" in lines[-1]
    assert "left" in lines[-1]
    assert "Last result at " in lines[-1]
    assert "Nobody" not in "".join(lines)
    assert progress_line(tmp_path).startswith("8 of 8 runs. Last result at ")
    assert "Nobody" not in progress_line(tmp_path)


def test_a_cohort_that_failed_on_a_cluster_is_not_counted_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from boolit.lab.execute import cluster

    counted: list[int] = []
    monkeypatch.setattr(StudyProgress, "finish", lambda _, runs: counted.append(runs))
    monkeypatch.setattr(cluster, "train_on", lambda _, missing, *__: (local.Failed(cohort, "broken") for cohort in missing))
    with Store(tmp_path) as store:
        summary = execute(plan(load_study("xor"), seeds=2), store, progress=False, cluster=SimpleNamespace(local=None))  # type: ignore[arg-type]
    assert summary.failed > 0
    assert counted == []


def test_80_columns_show_counts_and_time_left_first() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with StudyProgress(1400, 700, None, console) as bars:
        bars.begin("or_and_xnor_nail_d, 1,048,576 parameters, 100 runs")
        bars.show_workers(12, 3.0)
        lines = ["".join(segment.text for segment in line) for line in console.render_lines(bars._bars.get_renderable())]
    assert len(lines) == 2
    assert lines[0].split()[0] == "703/1400"
    assert ":" in lines[0].split()[1]
    assert all(len(line) <= 80 for line in lines)
