"""What the commands print where: colours, widths, completion, the question at the end; and docs/command-line.md on it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from rich.console import Console

import boolit
from boolit.cli import _terminal, _verify
from boolit.cli._app import COMPLETION, EXIT_CODES, run
from boolit.cli._terminal import UNCUT, activation_name, has_browser, offer_to_open, output, plain_table
from boolit.lab.paper.verification import Check, CheckFamily

SOURCES = Path(boolit.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
LONG = "a sentence of many words " * 20


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_terminal_nothing_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain_table("name", "text")
    table.add_row("x" * 100, LONG)
    output().print(table)
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "text"]
    assert row.rstrip() == f"{'x' * 100}  {LONG}".rstrip()


@pytest.mark.parametrize("arguments", [("list",), ("list", "studies"), ("list", "figures"), ("show", "parity"), ("paper",)])
def test_no_command_cuts_a_word_in_a_pipe(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert "…" not in capsys.readouterr().out


def test_in_a_narrow_terminal_words_are_folded_instead_of_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run(["list", "studies"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 40
    assert "…" not in out


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_colours(
    settings: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_verify, "choose", lambda _: (CheckFamily("sample", "Sample", "tab:s", lambda: [Check("x", 1, 1)]),))
    assert run(["verify"]) == 0
    assert ("\x1b[32m" in capsys.readouterr().out) == coloured


def test_names_are_those_of_the_paper_where_the_stream_has_them() -> None:
    assert activation_name("xnor_ail", Console(file=io.StringIO())) == "XNORₐᵢₗ"
    assert activation_name("xnor_ail", Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))) == "xnor_ail"


def test_the_width_is_the_terminal_s_or_that_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert output().width == UNCUT
    monkeypatch.setenv("COLUMNS", "77")
    assert output().width == 77


# One line of verify.


def summarise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *checks: Check) -> tuple[int, str]:
    monkeypatch.setattr(_verify, "choose", lambda _: (CheckFamily("sample", "A sample", "tab:sample", lambda: checks),))
    return run(["verify", "--summary"]), capsys.readouterr().out


def test_the_summary_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right, erratum, wrong = Check("a", 1, 1), Check("b", 12, 10, expected=10, kind="erratum"), Check("c", 1, 2)
    expected = "all 3 checks agree: 2 printed in the paper, 1 errata of the paper\n"
    assert summarise(monkeypatch, capsys, right, right, erratum) == (0, expected)
    assert summarise(monkeypatch, capsys, right, wrong) == (1, "1 of 2 checks fail: 2 printed in the paper\n")


# The offer to open a report.


class Answers:
    """A desktop, a terminal and somebody who answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: str, terminal: bool = True, browser: bool = True) -> None:
        self.asked, self.opened = 0, list[str]()
        monkeypatch.setattr(_terminal, "has_browser", lambda: browser)
        for stream in (sys.stdin, sys.stdout):
            monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)

        def ask(_question: str) -> str:
            self.asked += 1
            return answer

        monkeypatch.setattr("builtins.input", ask)
        monkeypatch.setattr(webbrowser, "open", self.opened.append)


@pytest.mark.parametrize(("answer", "opens"), [("", False), ("n", False), ("y", True), ("Yes", True), ("what", False)])
def test_it_opens_on_a_yes_only(answer: str, opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, answer)
    offer_to_open(tmp_path / "report.html")
    assert answers.asked == 1
    assert answers.opened == ([(tmp_path / "report.html").as_uri()] if opens else [])


@pytest.mark.parametrize(("terminal", "browser"), [(False, True), (True, False)])
def test_nothing_is_asked_where_nobody_could_answer_or_see_it(
    terminal: bool, browser: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(monkeypatch, "y", terminal, browser)
    offer_to_open(tmp_path)
    assert (answers.asked, answers.opened) == (0, [])


@pytest.mark.parametrize(
    ("settings", "found", "has"),
    [
        ({}, webbrowser.BackgroundBrowser("firefox"), False),
        ({"DISPLAY": ":0"}, webbrowser.BackgroundBrowser("firefox"), True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, webbrowser.BackgroundBrowser("firefox"), True),
        ({"DISPLAY": ":0"}, webbrowser.GenericBrowser("lynx"), False),
        ({"DISPLAY": ":0"}, None, False),
    ],
)
def test_a_browser_needs_a_desktop(
    settings: dict[str, str], found: webbrowser.BaseBrowser | None, has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get() -> webbrowser.BaseBrowser:
        if found is None:
            raise webbrowser.Error
        return found

    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "get", get)
    assert has_browser() == has


# Completion.

COMPLETE = """
import contextlib, io, json, os, sys
lines, sys.argv[0] = json.loads(sys.argv[1]), "boolit"
from boolit.cli import main
found = {}
for line in lines:
    os.environ.update(_BOOLIT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([])
    found[line] = out.getvalue().split()
print(json.dumps([found, "torch" in sys.modules]))
"""
COMPLETED = {
    "boolit ver": ["verify"],
    "boolit run par": ["parity", "parity8"],
    "boolit run parity --profile ": ["paper", "quick"],
    "boolit compare t.csv -a relu,signed": ["relu,signed_geomean"],
    "boolit list st": ["studies"],
    "boolit figures gate-x": ["gate-xnor"],
    "boolit paper mlp": ["mlp-covtype", "mlp-mnist"],
    "boolit compare t.csv --task ": ["classify", "regress"],
    "boolit verify --only maps,tra": ["maps,transfer"],
    "boolit export there --hist": ["--history"],
}


def test_a_shell_completes_names_without_torch() -> None:
    given = [sys.executable, "-c", COMPLETE, json.dumps(list(COMPLETED))]
    done = subprocess.run(given, capture_output=True, encoding="utf-8", check=True)
    found, torch_loaded = json.loads(done.stdout)
    assert found == COMPLETED
    assert not torch_loaded


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_there_is_a_script_for_the_shell(shell: str) -> None:
    environment = {**os.environ, COMPLETION: f"source_{shell}"}
    done = subprocess.run([sys.executable, "-m", "boolit"], env=environment, capture_output=True, encoding="utf-8", check=True)
    assert COMPLETION in done.stdout
    assert f"complete_{shell}" in done.stdout


# The page.


def rows(heading: str) -> dict[str, str]:
    """A table of the page: the first column and the second."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `?([^|`]+?)`? \| (.+?) \|$", section, re.MULTILINE)[1:])


def test_the_help_has_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"{code} {meaning}" in told for code, meaning in EXIT_CODES.items())
