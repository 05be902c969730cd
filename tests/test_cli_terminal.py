"""Colors, widths and shell completion of the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from boolit.cli import _paper
from boolit.cli._app import COMPLETION, run
from boolit.lab.paper.verification import Check, CheckFamily


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "studies"), ("list", "figures"), ("run", "parity", "--dry-run"), ("paper",)]
)
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
    monkeypatch.setattr(_paper, "choose", lambda _: (CheckFamily("sample", "Sample", "tab:s", lambda: [Check("x", 1, 1)]),))
    assert run(["verify"]) == 0
    assert ("\x1b[32m" in capsys.readouterr().out) == coloured


# One line of verify.


def summarise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *checks: Check) -> tuple[int, str]:
    monkeypatch.setattr(_paper, "choose", lambda _: (CheckFamily("sample", "A sample", "tab:sample", lambda: checks),))
    return run(["verify", "--summary"]), capsys.readouterr().out


def test_the_summary_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right, erratum, wrong = Check("a", 1, 1), Check("b", 12, 10, expected=10, kind="erratum"), Check("c", 1, 2)
    expected = "all 3 checks agree: 2 printed in the paper, 1 errata of the paper\n"
    assert summarise(monkeypatch, capsys, right, right, erratum) == (0, expected)
    assert summarise(monkeypatch, capsys, right, wrong) == (1, "1 of 2 checks fail: 2 printed in the paper\n")


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
    "boolit compare t.csv -a relu,signed": ["relu,signed_geomean"],
    "boolit list st": ["studies"],
    "boolit compare t.csv --task ": ["classify", "regress"],
    "boolit run parity --dry": ["--dry-run"],
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
