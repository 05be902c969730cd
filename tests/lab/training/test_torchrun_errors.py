"""Bad input under torchrun is one line, once: the first process says it, the others end without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boolit.cli._app import run

PLANNING = ["run", "parity", "--set", "training.epochs=0"], "error: --set training.epochs=0: training.epochs is 0;"
STORING = ["run", "parity", "--out", "file"], "error: cannot make the folder file"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "boolit"]


def test_bad_input_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != "RANK"} | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, *TORCHRUN, *arguments], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
        )
        for arguments, _ in (PLANNING, STORING)
    ]
    for process, (_, sentence) in zip(started, (PLANNING, STORING), strict=True):
        _, told = process.communicate()
        assert process.returncode != 0
        assert told.count(sentence) == 1
        # torchrun's own report follows, with a traceback of torchrun: ours has none, and no process complains of another.
        assert told.count("Traceback") <= 1
        assert "boolit/cli" not in told
        assert "boolit/lab" not in told
        assert "Connection" not in told


def test_only_the_first_process_tells_of_a_wrong_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        assert run(["run", "parity", "--nope"]) == 2
        assert capsys.readouterr().err.count("error: No such option: --nope") == lines
