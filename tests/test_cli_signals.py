"""Ctrl-C and SIGTERM end the command with one line at any moment.

The child sends the signal to itself when it imports a module or opens a file, so that the moment is always the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from boolit.cli._app import run
from boolit.cli._signals import INTERRUPT_MESSAGE

HOOK = """
import os, sys

SIGNAL, EVENT, NAME = int(os.environ["SEND"]), os.environ["AT_EVENT"], os.environ["AT_NAME"]
sent = False

def watch(event, arguments):
    global sent
    if not sent and event == EVENT and NAME in str(arguments[0]):
        sent = True
        os.kill(os.getpid(), SIGNAL)

sys.addaudithook(watch)
"""
SETS = ["training.epochs=3", "data.train=64", "sweep.activation=['relu','max']"]
SMALL = ["--seeds", "2", *(word for each in SETS for word in ("--set", each))]
MOMENTS = [
    ("import", "torch"),
    ("import", "torch.nn"),
    ("import", "boolit.nn"),
    ("import", "boolit.cli._app"),
    ("import", "boolit.lab.studies.planner"),
    ("import", "boolit.lab.results.store"),
    ("import", "boolit.lab.reports.report"),
]


def prepare(tmp_path: Path, number: signal.Signals, event: str, name: str) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment of a small study that is sent a signal."""
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SEND": str(int(number)),
        "AT_EVENT": event,
        "AT_NAME": name,
    }
    return [sys.executable, "-m", "boolit", "run", "parity", "--out", str(tmp_path / "out"), *SMALL], environment


def command(tmp_path: Path, number: signal.Signals, event: str, name: str, more: list[str]) -> subprocess.CompletedProcess[str]:
    arguments, environment = prepare(tmp_path, number, event, name)
    return subprocess.run([*arguments, *more], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("event", "name"), MOMENTS, ids=[name for _, name in MOMENTS])
def test_ctrl_c_is_one_line_at_any_moment(tmp_path: Path, event: str, name: str) -> None:
    done = command(tmp_path, signal.SIGINT, event, name, ["--json"])
    assert (done.returncode, done.stderr) == (130, f"{INTERRUPT_MESSAGE}\n")


@pytest.mark.parametrize(("event", "name"), [MOMENTS[0], MOMENTS[4]], ids=["torch", "planner"])
def test_sigterm_ends_it_the_same_way(tmp_path: Path, event: str, name: str) -> None:
    done = command(tmp_path, signal.SIGTERM, event, name, [])
    assert (done.returncode, done.stderr) == (130, f"{INTERRUPT_MESSAGE}\n")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_on_a_terminal_the_line_is_the_last_one(tmp_path: Path) -> None:
    arguments, environment = prepare(tmp_path, signal.SIGINT, "os.rename", "out/weights/")  # while bars are shown
    ours, theirs = os.openpty()
    with subprocess.Popen(arguments, env=environment, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        limit = threading.Timer(120, child.kill)
        limit.start()
        shown = b""
        with suppress(OSError):  # Linux raises it when the child has closed its side
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        limit.cancel()
    assert child.returncode == 130
    assert shown.count(INTERRUPT_MESSAGE.encode()) == 1
    assert b"Traceback" not in shown


def test_the_same_command_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = command(tmp_path, signal.SIGINT, "os.rename", "out/weights/", ["--json"])  # between two cohorts
    assert (stopped.returncode, stopped.stderr) == (130, f"{INTERRUPT_MESSAGE}\n")
    assert list((tmp_path / "out" / "checkpoints").iterdir())
    assert run(["run", "parity", "--out", str(tmp_path / "out"), *SMALL]) == 0
    assert "Trained 2 runs" in capsys.readouterr().out
