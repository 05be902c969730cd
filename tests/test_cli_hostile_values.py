"""Values that no study can mean, and outputs that cannot be written, are one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boolit.cli._app import run

DEEP = "[" * 20_000 + "]" * 20_000
TOML = """\
title = "small"
[data]
name = "parity"
train = 64
[model]
name = "mlp"
[sweep]
activation = "relu"
width = [[4]]
seeds = 1
[training]
epochs = 1
batch = 32
[metric]
name = "accuracy"
"""


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line a command is refused with."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert len(line) <= 1_100
    return line


def test_seeds_of_the_command_line_are_counted_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--seeds 1000000000" in refused(["run", "parity", "--seeds", "1000000000"], capsys)
    assert "--seeds 1000000000000" in refused(["run", "parity", "--seeds", f"{10**20}"], capsys)
    assert "at most 200,000" in refused(["run", "parity", "--seeds", "100000"], capsys)


@pytest.mark.parametrize("given", [["--out", ""], ["--out="], ["-o", ""], ["--hparams", ""], ["--profile", ""], ["--set="]])
def test_an_empty_value_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "empty value" in refused(["run", "parity", *given], capsys)


def test_a_file_in_the_place_of_the_weights_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.toml").write_text(TOML)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "weights").write_text("")
    given = ["run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"), "--set", "keep_weights=true", "--json"]
    assert "weights" in refused(given, capsys)


IN_TURN = """
import gc, json, os, sys
import boolit.cli._app
from boolit.cli import main

gc.freeze()  # what was imported is not looked through at the end of each
for arguments in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writing, 2)
        main(arguments)
    os.close(writing)
    with open(reading) as errors:
        said = errors.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said]), file=sys.stderr)
"""


def in_turn(commands: list[list[str]], output: int) -> list[tuple[int, str]]:
    """The exit code and standard error of commands that write to this file: forks of one process, which imports for all."""
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)], stdout=output, stderr=subprocess.PIPE, text=True
    )
    return [tuple(json.loads(line)) for line in done.stderr.splitlines()]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
def test_a_full_output_is_one_line() -> None:
    commands = [["list"], ["list", "--json"], ["--version"], ["run", "parity", "--dry-run"]]
    with open("/dev/full", "w") as full:
        results = in_turn(commands, full.fileno())
    for command, (code, said) in zip(commands, results, strict=True):
        assert code == 2, command
        (line,) = said.splitlines()
        assert "No space left" in line, command


def test_a_reader_that_leaves_is_no_error() -> None:
    commands = [["list"], ["list", "--json"]]
    reading, writing = os.pipe()
    os.close(reading)
    results = in_turn(commands, writing)
    os.close(writing)
    assert results == [(141, "")] * len(commands)
