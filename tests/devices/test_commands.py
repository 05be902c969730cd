"""Every command that trains does so on the device it is given: the same keys and numbers, and a record of the device."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from boolit.cli._app import run
from boolit.lab.results.store import Store
from boolit.lab.runs import Result

STANDIN = Path(__file__).with_name("standin_device.py")
TINY = ["--activations", "relu,or_ail", "--set", "training.epochs=2", "--set", "data.train=64", "--set", "data.test=64"]
FOUND = ["--activations", "relu", *TINY[2:], "--set", 'training.learning_rate="find"']
SEARCH = ["--rounds", "1", "--trials", "5", "--seeds", "2"]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def records(
    command: Sequence[str], device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Result]:
    """What a command leaves in its store, trained in a data folder of its own."""
    monkeypatch.setenv("BOOLIT_DATA", str(Path(f"data-{device}").resolve()))
    assert run([*command, "--device", device, "--out", f"out-{device}", "--json"]) == 0
    capsys.readouterr()
    with Store(Path(f"out-{device}")) as store:
        return {record.key: record for record in store.results()}


def assert_same_results(one: dict[str, Result], other: dict[str, Result]) -> None:
    assert one.keys() == other.keys()
    for key, own in one.items():
        np.testing.assert_equal((own.metrics, own.history), (other[key].metrics, other[key].history))  # nan equals nan


@pytest.mark.parametrize("command", ["run", "find", "search"])
def test_a_command_has_the_cpu_s_results(
    command: str,
    standin: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = {
        "run": ["run", "parity", *TINY, "--seeds", "2"],
        "find": ["run", "parity", *FOUND, "--seeds", "1"],
        "search": ["search", "parity", *TINY, *SEARCH],
    }[command]
    found = [records(line, device, monkeypatch, capsys) for device in ("cpu", standin.NAME)]
    assert standin.transfers["from the CPU"] > 0
    assert_same_results(*found)
    assert [{own.environment["device"] for own in of_device.values()} for of_device in found] == [{"cpu"}, {"standin:0"}]


def test_a_run_is_not_trained_again_on_another_device(standin: ModuleType) -> None:
    line = ["run", "parity", *TINY, "--seeds", "1", "--out", "out", "--json"]
    assert run([*line, "--device", standin.NAME]) == 0
    assert run(line) == 0
    with Store(Path("out")) as store:
        assert {record.environment["device"] for record in store.results()} == {"standin:0"}
    assert "standin:0" in Path("out/report/report.html").read_text()


@pytest.mark.parametrize("command", [["run", "parity"], ["search", "parity"]])
@pytest.mark.parametrize("device", ["cuda:99", "standin:1", "meta", "gpu"])
def test_a_device_that_is_not_there_is_one_line(
    command: list[str], device: str, standin: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--device", device, "--out", "out"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: there is no device '{device}' here; torch can use cpu")
    assert said.err.count("\n") == 1
    assert standin.NAME in said.err
    assert not Path("out").exists()


def test_a_device_without_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("boolit.lab.execute.local.train", full)
    assert run(["run", "parity", *TINY, "--device", "cpu", "--out", "out"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: out of memory on cpu with relu, 33 parameters, 40 runs; lower training.batch")


def test_a_device_of_a_plugin(tmp_path: Path) -> None:
    line = ["--plugin", str(STANDIN), "run", "parity", *TINY, "--seeds", "1", "--device", "standin", "--out", "out", "--json"]
    done = subprocess.run([sys.executable, "-m", "boolit", *line], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["trained"] == 2
    with Store(tmp_path / "out") as store:
        assert {record.environment["device"] for record in store.results()} == {"standin:0"}
