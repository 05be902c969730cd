"""``boolit report`` and ``boolit watch``: of every kind of folder, finished or not, old or new, alone or joined."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from boolit.cli import main
from boolit.cli._app import application
from boolit.cli._signals import INTERRUPT_MESSAGE
from boolit.lab.common.errors import UserError
from boolit.lab.reports.page import embed_json
from boolit.lab.reports.sections import FILE, NO_TABLE, ReportInfo, this_command
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run


def record(spec: str, seed: int, value: float, **entries: Any) -> Record:
    config = {
        "study": "sample",
        "profile": "quick",
        "activation": spec,
        "parameters": 36,
        "width": [4],
        "depth": 1,
        "metric": {"name": "accuracy", "split": "test", "goal": "max"},
        "training": {"epochs": 3},
        "seed": seed,
        **entries,
    }
    run = Run.from_dict(config)
    history = {"test_accuracy": [value / 2, value]}
    return Record(run.key, run.config, "finished", {"test_accuracy": value}, history, {"boolit": "0.0"}, 0.5)


def sample(specs: Sequence[str] = ("relu", "xnor_ail"), seeds: Sequence[int] = range(4), **entries: Any) -> list[Record]:
    return [
        record(spec, seed, 0.5 + 0.2 * place + 0.01 * seed, **entries) for place, spec in enumerate(specs) for seed in seeds
    ]


def fill(folder: Path, records: Sequence[Record], info: ReportInfo | None = None) -> Path:
    with Store(folder) as store:
        store.record(records)
    if info:
        info.write(folder)
    return folder


def report(*arguments: object) -> dict[str, Any]:
    found = CliRunner().invoke(application(), ["report", *map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_an_old_folder_is_reported_by_what_its_records_say(tmp_path: Path) -> None:
    told = report(fill(tmp_path, sample()))
    (section,) = told["sections"]
    assert (section["kind"], section["done"], section["unfinished"]) == ("run", 8, None)
    assert section["verdict"].startswith("XNORₐᵢₗ is best")
    page = Path(told["page"])
    assert page == tmp_path / "report" / "report.html"
    assert "XNOR<sub>AIL</sub> is best" in page.read_text("utf-8")
    assert (tmp_path / "report" / "tables.csv").read_text("utf-8").startswith("activation,map,")


def test_an_unfinished_one_has_no_verdict(tmp_path: Path) -> None:
    records = sample()
    info = ReportInfo(title="Half", planned=8, keys=[each.key for each in records], study="sample", profile="quick")
    (section,) = report(fill(tmp_path, records[:5], info))["sections"]
    assert section["unfinished"] == "Unfinished: 5 of 8 runs are done; there is no verdict before all are."
    assert (section["verdict"], section["title"]) == (None, "Half")


def test_even_a_folder_without_a_run_has_a_page(tmp_path: Path) -> None:
    (section,) = report(fill(tmp_path, [], ReportInfo(title="Begun", planned=8, keys=[])))["sections"]
    assert section["unfinished"].startswith("Unfinished: 0 of 8 runs are done")


def test_runs_that_are_not_the_studys_own_are_left_out(tmp_path: Path) -> None:
    records = sample()
    others = sample(("tanh",), training={"epochs": 4})
    info = ReportInfo(title="Mine", planned=8, keys=[each.key for each in records], study="mine", profile=None)
    (section,) = report(fill(tmp_path, [*records, *others], info))["sections"]
    assert (section["done"], section["title"]) == (8, "Mine")
    assert "tanh" not in (tmp_path / "report" / "tables.csv").read_text("utf-8")


def test_folders_are_joined_study_by_study(tmp_path: Path) -> None:
    first = fill(tmp_path / "a", sample(seeds=range(4)))
    second = fill(tmp_path / "b", sample(seeds=range(2, 6)))
    third = fill(tmp_path / "c", sample(("max", "or_ail"), study="another"))
    page = tmp_path / "joined.html"
    told = report(first, second, third, "--out", page)
    assert [(section["title"], section["done"]) for section in told["sections"]] == [("sample quick", 12), ("another quick", 8)]
    text = page.read_text("utf-8")
    assert text.count('<section id="s') == 2
    assert '<nav aria-label="Contents"><ul><li><a href="#s0">sample quick</a></li><li><a href="#s1">' in text
    refused = CliRunner().invoke(application(), ["report", str(first), str(second)])
    assert "--out report.html" in str(refused.exception)


def test_a_comparison_keeps_its_verdict(tmp_path: Path) -> None:
    records = [replace_split(each) for each in sample(seeds=range(1, 6), profile="compare")]
    scores = {"relu": [0.51, 0.52, 0.53, 0.54, 0.55], "xnor_ail": [0.71, 0.72, 0.73, 0.74, 0.75], "majority class": [0.4] * 5}
    splits = {"scores": scores, "tested": 100, "others": 400, "reference": "relu"}
    own = {"baseline": "majority class", "baseline_text": "guessing the majority class"}
    info = ReportInfo(kind="compare", title="wine", planned=10, paragraphs=["Saved: it."])
    info = ReportInfo.model_validate({**info.model_dump(), "splits": {**splits, **own}})
    (section,) = report(fill(tmp_path / "new", records, info))["sections"]
    assert section["verdict"].startswith("XNORₐᵢₗ is significantly better than ReLU (reference, by 20.0 points")
    page = (tmp_path / "new" / "report" / "report.html").read_text("utf-8")
    assert "<p>Saved: it.</p>" in page
    assert "minus ReLU</button>" in page
    told = report(fill(tmp_path / "old", records))
    assert (told["sections"][0]["kind"], told["sections"][0]["verdict"]) == ("compare", None)
    assert NO_TABLE.split(",")[0] in Path(told["page"]).read_text("utf-8")


def replace_split(each: Record) -> Record:
    config = each.config.replace(split=each.config.seed)
    return replace(each, key=config.key, config=config)


def test_a_search_shows_its_final(tmp_path: Path) -> None:
    rates = {"round 0": (0.1, 0.01, 0.001), "final": (0.01, 0.02)}
    records = [
        record(spec, 100 * place + seed, 0.6 + rate, search=stage, training={"epochs": 3, "learning_rate": rate})
        for spec in ("relu", "xnor_ail")
        for stage, tried in rates.items()
        for place, rate in enumerate(tried)
        for seed in range(1 if stage == "round 0" else 3)
    ]
    (section,) = report(fill(tmp_path, records))["sections"]
    assert section["kind"] == "search"
    assert section["verdict"].startswith("A setting was found for ReLU (62.00), XNORₐᵢₗ (62.00): the mean test accuracy")
    table = (tmp_path / "report" / "tables.csv").read_text("utf-8")
    assert "learning rate" in table.splitlines()[0]
    assert len(table.splitlines()) == 5


def test_no_browser_is_told_politely_and_the_page_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("boolit.cli._report.has_browser", lambda: False)
    fill(tmp_path, sample())
    with pytest.raises(SystemExit) as end:
        main(["report", str(tmp_path), "--open"])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: there is no desktop or browser to open file:")
    assert error.count("\n") == 1
    assert (tmp_path / "report" / "report.html").stat().st_size > 500_000


def test_a_browser_is_given_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("boolit.cli._report.has_browser", lambda: True)
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    report(fill(tmp_path, sample()), "--open")
    assert opened == [(tmp_path / "report" / "report.html").resolve().as_uri()]


@pytest.mark.parametrize(
    ("content", "rule"), [(b"{", "is damaged"), (b'{"kind": "wish"}', "is damaged"), (b"[" * 100_000, "is damaged")]
)
def test_a_damaged_description_is_one_line(tmp_path: Path, content: bytes, rule: str) -> None:
    fill(tmp_path, sample())
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / FILE).write_bytes(content)
    with pytest.raises(UserError, match=rule):
        ReportInfo.read(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [(("report", "no-such-folder"), "no-such-folder"), (("watch", "no-such-folder"), "no-such-folder")],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    error = capsys.readouterr().err
    assert (end.value.code, error.count("\n")) == (2, 1)
    assert rule in error


def test_the_page_asks_nobody_and_escapes_what_it_is_given(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)><!--"
    records = sample(("relu", hostile))
    told = report(fill(tmp_path, records, ReportInfo(title=hostile, command=hostile, paragraphs=[hostile], planned=8)))
    page = Path(told["page"]).read_text("utf-8")
    assert "<img src=x" not in page
    assert page.count("</script>") == page.count("<script")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert "connect-src 'none'" in policy[1]
    assert "unsafe-eval" not in policy[1]
    markup = page[: page.index("<script>")]  # after which Vega's own texts follow
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=(?!\"data:)", markup)
    assert json.loads(embed_json({"a": hostile})) == {"a": hostile}


def test_the_command_is_kept_as_a_shell_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/boolit", "run", "parity", "--set", "sweep.width=[4, 2]"])
    assert this_command() == "boolit run parity --set 'sweep.width=[4, 2]'"
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest", "run"])
    assert this_command() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_ctrl_c_ends_watching_cleanly(tmp_path: Path) -> None:
    fill(tmp_path, sample())
    command = [sys.executable, "-m", "boolit", "watch", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as child:
        assert child.stderr
        line = child.stderr.readline()
        assert re.search(r"http://127\.0\.0\.1:\d+/ \(Ctrl-C ends it\)", line)
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert (child.returncode, rest) == (130, f"{INTERRUPT_MESSAGE}\n")


def test_a_terminal_without_small_letters_spells_them(tmp_path: Path) -> None:
    fill(tmp_path, sample())
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "boolit", "report", str(tmp_path)], env=environment, capture_output=True)
    assert b"XNOR_ail is best" in done.stdout
