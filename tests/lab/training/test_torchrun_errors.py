"""Bad input under torchrun is one line, once: the first process says it, the others end without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boolit.cli._app import run

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "boolit"]


def test_bad_input_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {name: value for name, value in os.environ.items() if name != "RANK"} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *TORCHRUN, "run", "parity", "--out", "file"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.count("error: cannot make the folder file") == 1
    # torchrun's own report follows, with a traceback of torchrun: ours has none, and no process complains of another.
    assert done.stderr.count("Traceback") <= 1
    assert "boolit/cli" not in done.stderr
    assert "boolit/lab" not in done.stderr
    assert "Connection" not in done.stderr


WRONG = {
    ("--nope",): "error: No such option: --nope",
    ("--set", "training.epochs=0"): "error: --set training.epochs=0: training.epochs is 0;",
}


@pytest.mark.parametrize("options", list(WRONG))
def test_only_the_first_process_tells_of_a_wrong_option(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        assert run(["run", "parity", *options]) == 2
        assert capsys.readouterr().err.count(WRONG[options]) == lines
