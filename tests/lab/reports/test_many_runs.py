"""Reports of more runs than are drawn: numbers are of all runs, drawings of the first, which is said; nothing else is read."""

from __future__ import annotations

import csv
import math
import random
import sqlite3
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boolit.cli._app import run as command
from boolit.lab.reports import server as server_module
from boolit.lab.reports import tables
from boolit.lab.reports.figures.results import MOST_DRAWN
from boolit.lab.reports.figures.study import study_figures
from boolit.lab.reports.server import ReportServer
from boolit.lab.results import store as store_module
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run

SEEDS = MOST_DRAWN + 200
SPECS = ("relu", "xnor_ail")
SENTENCE = f"Drawn are the first {MOST_DRAWN:,} runs of each activation and size, by seed: {2 * MOST_DRAWN:,} of {2 * SEEDS:,}."


def records(seeds: int = SEEDS, sizes: tuple[int, ...] = (36,)) -> list[Record]:
    drawn, found = random.Random(0), []
    for spec in SPECS:
        for size in sizes:
            for seed in range(seeds):
                entries = {"study": "many", "activation": spec, "width": [size], "parameters": size, "depth": 1, "seed": seed}
                run = Run.from_dict({**entries, "metric": {"name": "accuracy", "split": "test", "solved": 0.9}})
                curve = [drawn.random() for _ in range(3)]
                # Those that are not drawn have another mean, so that leaving them out of a number would be seen.
                metrics = {"test_accuracy": curve[-1] / (2 if seed >= MOST_DRAWN else 1)}
                found.append(Record(run.key, run.config, "finished", metrics, {"test_accuracy": curve}, {"threads": 1}, 0.5))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is checked as large ones are: its rows when they are read, and not when it is opened."""
    monkeypatch.setattr("boolit.lab.results.database.FULL_CHECK_BYTES", 0)
    with Store(tmp_path / "many") as store:
        store.record(records())
    return tmp_path / "many"


@pytest.fixture
def read_keys(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The keys whose curves were read; reading those of all runs at once fails."""
    read: set[str] = set()
    select_rows, select_row = store_module.select_rows, store_module.select_row

    def no_history(database: sqlite3.Connection, history: bool) -> Any:
        assert not history
        return select_rows(database, history)

    def note(database: sqlite3.Connection, key: str) -> Any:
        read.add(key)
        return select_row(database, key)

    monkeypatch.setattr(store_module, "select_rows", no_history)
    monkeypatch.setattr(store_module, "select_row", note)
    return read


def test_curves_are_read_of_the_first_runs_only(folder: Path, read_keys: set[str]) -> None:
    assert command(["report", str(folder)]) == 0
    assert read_keys == {record.key for record in records() if record.config.seed < MOST_DRAWN}


def test_numbers_are_of_all_runs(folder: Path) -> None:
    assert command(["report", str(folder)]) == 0
    text = (folder / "report" / "tables.csv").read_text(encoding="utf-8")
    rows = {row["activation"]: row for row in csv.DictReader(text.splitlines())}
    for spec in SPECS:
        values = [r.metrics["test_accuracy"] for r in records() if r.config.activation == spec]
        assert float(rows[spec]["n"]) == SEEDS
        assert float(rows[spec]["test accuracy"]) == statistics.fmean(values)
        error = statistics.stdev(values) / math.sqrt(SEEDS)
        assert float(rows[spec]["test accuracy standard error"]) == error
        assert float(rows[spec]["solved (≥ 90 %)"]) == sum(value >= 0.9 for value in values)


def test_the_page_says_what_is_drawn_and_does_not_depend_on_who_wrote_first(folder: Path, tmp_path: Path) -> None:
    shuffled = records()
    random.Random(1).shuffle(shuffled)
    with Store(tmp_path / "other" / "many") as store:
        store.record(shuffled)
    pages = []
    for place in (folder, tmp_path / "other" / "many"):
        assert command(["report", str(place)]) == 0
        pages.append((place / "report" / "report.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
    assert pages[0].count(f"{SENTENCE}</figcaption>") == 2  # dots and curves
    assert "of every run" not in pages[0]


def test_captions_of_figures_say_what_is_drawn(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        many, few = records(sizes=(20, 36)), records(seeds=3, sizes=(20, 36))
        captions = {name: caption for name, caption, _ in study_figures(many, store)}
        assert SENTENCE in captions["curves"]
        assert f"the first {MOST_DRAWN:,} runs a dot" in captions["sizes"]
        captions = {name: caption for name, caption, _ in study_figures(few, store)}
        assert "Drawn are" not in captions["curves"]
        assert "every run a dot" in captions["sizes"]


def test_a_table_of_a_plugin_gets_whole_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Record] = []
    monkeypatch.setattr(tables, "_REGISTERED", {})

    @tables.register
    def some_runs(given: Sequence[Record]) -> None:
        seen.extend(replace(record, history=dict(record.history)) for record in given[::400])

    assert command(["report", str(folder)]) == 0
    with Store(folder) as store:
        assert seen == store.records()[::400]
    assert [record.config.seed for record in seen] == [0, 400, 800] * 2


@pytest.mark.parametrize("table", ["runs", "history"])
def test_damage_of_what_is_reported_is_noticed(folder: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    seed = MOST_DRAWN - 1 if table == "history" else MOST_DRAWN + 1  # a curve that is drawn; a score that is not
    key = next(record.key for record in records() if record.config.seed == seed)
    change = "history SET epochs = x'00'" if table == "history" else "runs SET metrics = '{\"test_accuracy\":1.0}'"
    with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as database:
        database.execute(f"UPDATE {change} WHERE key = ?", (key,))
    assert command(["report", str(folder)]) == 2
    assert f"is damaged: run '{key}' is not as it was written" in " ".join(capsys.readouterr().err.split())


def test_a_lost_curve_is_noticed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite", isolation_level=None)) as database:
        database.execute("DELETE FROM history")
    assert command(["report", str(folder)]) == 2
    assert "is not as it was written" in " ".join(capsys.readouterr().err.split())


def test_a_store_is_opened_again_only_if_it_was_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []

    class Counted(Store):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            opened.append(arguments)
            super().__init__(*arguments, **options)

    with ReportServer([folder]) as server:
        monkeypatch.setattr(server_module, "Store", Counted)
        states = [server.state() for _ in range(5)]
        assert len(set(states)) == 1
        assert len(opened) <= 2  # closing it may write its log back
        run = Run.from_dict({"study": "many", "seed": -1})
        with Store(folder) as store:
            store.record([Record(run.key, run.config, "finished", {})])
            assert server.state() not in states
