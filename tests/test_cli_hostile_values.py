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


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("sweep.seeds=1000000000", "less than or equal to 100000"),
        (f"sweep.seeds={10**20}", "at most 9007199254740992"),
        (f"sweep.seeds=[{10**20}]", "at most 9007199254740992"),
        (f"sweep.seeds={'9' * 5_000}", "is no TOML value"),
        ("sweep.seeds=true", "sweep.seeds is True"),
        ("sweep.seeds=[]", "sweep.seeds"),
        ("metric.solved=nan", "finite number"),
        ("training.eps=inf", "finite number"),
        ("training.learning_rate=nan", "learning_rate is nan"),
        ("training.weight_decay=inf", "finite number"),
        ("hparams.relu.eps=inf", "finite number"),
        ("data.seed=0.5", "valid integer"),
        ("sweep.width=[[]]", "at least 1 item"),
        ("sweep.width=[]", "at least 1 item"),
        ("sweep.width=[1000000000]", "less than or equal to 16777216"),
        ("sweep.width=[-0]", "greater than or equal to 1"),
        (f"sweep.width={DEEP}", "is no TOML value"),
        (f"sweep.width={DEEP[19_900:20_100]}", "16 levels deep"),
        ("sweep.params=[9000000000000000]", "less than or equal to 1000000000000"),
        ("sweep.depth=[5000000]", "less than or equal to 1000"),
        ("training.epochs=1000000000", "less than or equal to 1000000"),
        ("training.batch=1000000000", "less than or equal to 10000000"),
        (f"title='{'x' * 20_000}'", "at most 10,000 characters"),
        ('title="a\\u0000b"', "no NUL"),
        ("title='\udcff'", "valid Unicode"),
        (f"{'a.' * 5_000}b=1", "dotted key"),
        ("=", "dotted key"),
        ("profiles=1", "profiles is no known key"),
        ("data={name='table',path='',target='x'}", "data"),
        ("data={name='table',path='" + "x" * 5_000 + "',target='x'}", "data"),
    ],
    ids=lambda text: str(text)[:40].encode("ascii", "replace").decode(),
)
def test_a_value_beyond_reason_is_refused(given: str, rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert rule in refused(["show", "parity", "--set", given], capsys)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("data.train=1000000000000", "the data parity"),
        ("data.test=1000000000000", "the data parity"),
        ("sweep.width=[[1000000, 1000000]]", "a network of relu"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_allocated(
    given: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    line = refused(["run", "parity", "--out", str(out), "--set", "sweep.activation='relu'", "--set", given], capsys)
    assert line.startswith(f"error: {what}")
    assert "GiB of memory, this machine has" in line
    assert not out.exists()


def test_seeds_of_the_command_line_are_counted_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--seeds 1000000000" in refused(["run", "parity", "--seeds", "1000000000"], capsys)
    assert "--seeds 1000000000000" in refused(["run", "parity", "--seeds", f"{10**20}"], capsys)
    assert "at most 200,000" in refused(["run", "parity", "--seeds", "100000"], capsys)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("[metric]", "[profiles.'quick/../../x']\n[metric]", "no name for a profile"),
        ("[metric]", "[profiles.'..']\n[metric]", "no name for a profile"),
        ("[metric]", "[profiles.'']\n[metric]", "no name for a profile"),
        ("seeds = 1", f"seeds = {'9' * 5_000}", "not TOML"),
        ("seeds = 1", f"seeds = {DEEP}", "nested too deeply"),
        ("seeds = 1", "seeds = nan", "sweep.seeds is nan"),
        ('"relu"', str([f"or_ail_k{k}" for k in range(2, 20_002)]), "at most"),
        ('"relu"', str([f"or_ail_k{k}" for k in range(2, 3_002)]), "3,000 activations are too many"),
        ('"small"', f'"{"x" * 5_000_000}"', "bytes, the most that is read of such a file; a study is a short text"),
    ],
    ids=["profile path", "profile dots", "profile empty", "digits", "deep", "nan", "activations", "some", "long"],
)
def test_a_file_beyond_reason_is_refused(
    old: str, new: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(TOML.replace(old, new, 1))
    assert rule in refused(["show", str(path)], capsys)


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "...toml").write_text(TOML)
    assert "is no name for a study" in refused(["show", str(tmp_path / "...toml")], capsys)
    assert "is no path" in refused(["show", "x" * 5_000], capsys)


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
    commands = [["list"], ["list", "--json"], ["--version"], ["show", "parity"]]
    with open("/dev/full", "w") as full:
        results = in_turn(commands, full.fileno())
    for command, (code, said) in zip(commands, results, strict=True):
        assert code == 2, command
        (line,) = said.splitlines()
        assert "No space left" in line, command


def test_a_reader_that_leaves_is_no_error() -> None:
    commands = [["list"], ["list", "--json"], ["--help"]]
    reading, writing = os.pipe()
    os.close(reading)
    results = in_turn(commands, writing)
    os.close(writing)
    assert results == [(141, "")] * len(commands)
