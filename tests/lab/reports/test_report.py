"""Reports of results folders: studies, searches and comparisons, pages and the server."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boolit.errors import UserError
from boolit.lab.reports import server as server_module
from boolit.lab.reports.report import compare_section, html_page, read_section, search_section, study_section, write_report
from boolit.lab.reports.server import ReportServer
from boolit.lab.results.splits import SplitVerdict
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Result
from boolit.lab.studies import Plan, load_study, plan, save

ACCURACY = Metric(name="accuracy")


@pytest.fixture
def planned() -> Plan:
    return plan(load_study("parity"), seeds=3, sets=["sweep.activation=['relu', 'xnor_ail', 'max']"])


def fill(folder: Path, planned: Plan, part: int | None = None, **more) -> Path:
    """Record made-up results of the first runs of a plan."""
    levels = {"relu": 0.6, "max": 0.61, "xnor_ail": 0.9}
    results = [
        Result(
            run,
            "finished",
            {"test_accuracy": levels[run.activation] + run.seed / 100, "train_loss": 0.1},
            {},
            0.5,
            {"device": "cpu"},
        )
        for run in planned.runs[:part]
    ]
    with Store(folder) as store:
        store.record(results)
    save(planned, folder, command="boolit run parity", **more)
    return folder


def test_a_report_has_a_verdict_tables_charts_and_the_recipe(tmp_path: Path, planned: Plan) -> None:
    report = write_report(fill(tmp_path, planned))
    assert report.verdict.startswith("XNORₐᵢₗ has the highest mean test accuracy")
    assert "significantly better than ReLU" in report.verdict
    assert [path.name for path in report.files] == ["tables.md", "tables.tex", "tables.csv", "report.html"]
    page = (report.page or tmp_path).read_text("utf-8")
    assert "boolit run parity" in page
    assert "training.epochs" in page
    assert all(chart.name in page for chart in report.section.charts)
    assert report.tables[0].text.index.tolist() == list(report.section.charts[0].activations)


def test_runs_of_another_recipe_in_the_folder_are_left_out(tmp_path: Path, planned: Plan) -> None:
    other = plan(load_study("parity"), seeds=3, sets=["sweep.activation=['relu']", "training.epochs=2"])
    fill(tmp_path, other)
    section = read_section(fill(tmp_path, planned))
    assert section.done == section.planned == 9
    assert section.tables[0].text.loc["relu", "n"] == "3"


def test_an_unfinished_study_has_no_verdict(tmp_path: Path, planned: Plan) -> None:
    report = write_report(fill(tmp_path, planned, part=7))
    assert report.section.unfinished == "Unfinished: 7 of 9 runs are done; there is no verdict before all are."
    assert report.verdict == ""
    assert "p" not in report.tables[0].text


def test_a_folder_without_runs_has_no_page(tmp_path: Path, planned: Plan) -> None:
    save(planned, tmp_path)
    assert write_report(tmp_path).page is None
    with pytest.raises(UserError, match="not a results folder"):
        write_report(tmp_path / "elsewhere")


def test_hostile_texts_are_escaped(make_result, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.record(make_result(spec, seed, seed / 10) for spec in ("relu", "tanh") for seed in range(3))
    hostile = "</script><script>alert(1)</script>"
    section = study_section(store.frame(), store.curves(), ACCURACY, title=hostile, command=hostile, recipe={hostile: hostile})
    page = html_page([section])
    assert hostile not in page
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page


def test_a_search_reports_only_its_own_trials(tmp_path: Path) -> None:
    """Two searches of different length in one folder are not pooled."""
    from boolit.lab.studies.search import _without_test_rows, plan_search

    for epochs in (2, 3):
        sets = ["sweep.activation=['relu']", f"training.epochs={epochs}"]
        planned = plan_search(load_study("parity"), sets=sets)
        base = _without_test_rows(planned.runs[0])
        trials = [base.replace(seed=i, stage="round 0", training={"learning_rate": 0.1 / (i + 1)}) for i in range(4)]
        final = [base.replace(seed=10 + i, stage="final", training={"learning_rate": 0.1}) for i in range(3)]
        with Store(tmp_path) as store:
            store.record(Result(run, "finished", {"valid_accuracy": run.seed / 100}) for run in [*trials, *final])
        save(planned, tmp_path, "search", search={"rounds": 1, "trials": 4, "seeds": 3}, results=[{"covers": "valid rows"}])
    section = read_section(tmp_path)
    assert section.done == section.planned == 7
    assert section.tables[0].text["seeds"].tolist() == ["3"]
    assert section.verdict.startswith("The search chose a setting for ReLU (11.00).")
    assert [chart.name for chart in section.charts][:2] == ["runs", "beta1"]


def test_a_comparison_is_reported_from_its_entries(tmp_path: Path, make_result) -> None:
    scores = {"relu": [0.5, 0.55, 0.52], "max": [0.8, 0.81, 0.82], "guess": [0.3, 0.31, 0.3]}
    store = Store(tmp_path)
    store.record(make_result(spec, split, 0.0, split=split) for spec in ("relu", "max") for split in range(3))
    result = SplitVerdict(ACCURACY, 20, 80, scores, "guess", "guessing")
    section = compare_section(store.frame(), store.curves(), result, title="Wine")
    assert section.verdict == str(result)
    assert section.tables[0].text.loc["max", "accuracy (%)"].startswith("81.0")
    assert sorted(row["score"] for row in section.charts[0].records) == sorted([*scores["relu"], *scores["max"]])


def test_an_unfinished_search_says_so(make_result, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.record([make_result(stage="round 0", trial=True, metrics={"valid_accuracy": 0.5})])
    frame = store.frame().assign(learning_rate=0.1)
    section = search_section(frame, Metric(name="accuracy", split="valid"), ["learning_rate"], title="Search", planned=5)
    assert section.unfinished.startswith("Unfinished: 1 of 5")
    assert section.verdict == ""


@contextmanager
def serving(folder: Path) -> Iterator[ReportServer]:
    with ReportServer([folder]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: ReportServer, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", path, headers={"Host": f"127.0.0.1:{server.server_port}", **headers})
    return connection.getresponse()


def test_the_server_answers_to_its_own_address_and_follows_the_runs(tmp_path: Path, planned: Plan) -> None:
    with serving(fill(tmp_path, planned, part=4)) as server:
        assert ask(server, "/state", Host="evil.example").status == 421
        assert ask(server, "/../runs.sqlite").status == 404
        tag = ask(server, "/state").headers["ETag"]
        assert ask(server, "/state", **{"If-None-Match": tag}).status == 304
        assert b"Unfinished: 4 of 9" in ask(server, "/").read()
        fill(tmp_path, planned)
        assert ask(server, "/state").headers["ETag"] != tag
        assert b"has the highest mean" in ask(server, "/").read()


def test_idle_connections_are_closed(tmp_path: Path, planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module._Handler, "timeout", 0.2)
    with (
        serving(fill(tmp_path, planned, part=4)) as server,
        socket.create_connection(("127.0.0.1", server.server_port)) as idle,
    ):
        idle.settimeout(10)
        started = time.monotonic()
        assert idle.recv(1) == b""  # the server has closed it
        assert time.monotonic() - started < 10
    assert server_module.IDLE_SECONDS <= 60
