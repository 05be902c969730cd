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
BOTH = f"""
import gc, os, sys
import boolit.cli._app
from boolit.cli import main

gc.freeze()
codes = []
for attempt, arguments in enumerate(({PLANNING[0]!r}, {STORING[0]!r})):
    child = os.fork()
    if not child:
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(attempt)  # a group of its own, as if torchrun had started it again
        main(arguments)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.exit(min(codes))
"""


def test_bad_input_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "both.py").write_text(BOTH)
    started = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "both.py"]
    environment = {name: value for name, value in os.environ.items() if name != "RANK"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *started], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.count(PLANNING[1]) == 1
    assert done.stderr.count(STORING[1]) == 1
    # torchrun's own report follows, with a traceback of torchrun: ours has none, and no process complains of another.
    assert done.stderr.count("Traceback") <= 1
    assert "boolit/cli" not in done.stderr
    assert "boolit/lab" not in done.stderr
    assert "Connection" not in done.stderr


def test_only_the_first_process_tells_of_a_wrong_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        assert run(["run", "parity", "--nope"]) == 2
        assert capsys.readouterr().err.count("error: No such option: --nope") == lines
