"""Every command that trains does so on the device it is given: the same keys and numbers, and a record of the device."""

import csv
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from boolit.cli._app import run
from boolit.lab.models.resnet18 import Resnet18
from boolit.lab.results.export import export
from boolit.lab.results.store import Store
from boolit.lab.runs import Record

STANDIN = Path(__file__).with_name("standin_device.py")
TINY = ["--activations", "relu,or_ail", "--set", "training.epochs=2", "--set", "data.train=64", "--set", "data.test=64"]
FOUND = ["--activations", "relu", *TINY[2:], "--set", 'training.learning_rate="find"']
SEARCH = ["--rounds", "1", "--trials", "5", "--seeds", "2"]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def table(tmp_path: Path) -> str:
    drawn = np.random.default_rng(0)
    rows = [f"{x:.3f},{y:.3f},{round(x * y + 0.1 * z)}" for x, y, z in drawn.normal(size=(60, 3))]
    path = tmp_path / "products.csv"
    path.write_text("a,b,product\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    """Two classes of pictures, and weights that nobody trained."""
    drawn = np.random.default_rng(0)
    torch.save(Resnet18().state_dict(), tmp_path / "weights.pth")
    for name, least in (("bright", 150), ("dark", 0)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(10):
            pixels = drawn.integers(least, least + 100, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    return str(tmp_path / "pictures")


def records(
    command: Sequence[str], device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, Record]:
    """What a command leaves in its store, trained in a data folder of its own."""
    monkeypatch.setenv("BOOLIT_DATA", str(Path(f"data-{device}").resolve()))
    assert run([*command, "--device", device, "--out", f"out-{device}", "--json"]) == 0
    capsys.readouterr()
    with Store(Path(f"out-{device}"), create=False) as store:
        return {record.key: record for record in store.records()}


def assert_same_results(one: dict[str, Record], other: dict[str, Record]) -> None:
    assert one.keys() == other.keys()
    for key, own in one.items():
        np.testing.assert_equal((own.metrics, own.history), (other[key].metrics, other[key].history))  # nan equals nan


@pytest.mark.parametrize("command", ["run", "find", "search", "compare", "regress", "transfer"])
def test_a_command_has_the_cpu_s_results(
    command: str,
    request: pytest.FixtureRequest,
    standin: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if command in ("compare", "regress"):
        options = ["--splits", "5", "--rates", "0.01,0.1", "--epochs", "3", "--budget", "60", "--activations", "relu,or_ail"]
        task = ["--task", "regress", "--minutes", "5"] if command == "regress" else ["--task", "classify"]
        line = ["compare", request.getfixturevalue("table"), *options, "--target", "product", *task]
    elif command == "transfer":
        options = ["--weights", "weights.pth", "--size", "32", "--views", "1", "--seeds", "2", "--epochs", "2"]
        line = ["transfer", request.getfixturevalue("pictures"), *options, "--activations", "relu,or_ail"]
    else:
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
    with Store(Path("out"), create=False) as store:
        assert {record.environment["device"] for record in store.records()} == {"standin:0"}
        (written,) = export(store, Path("runs.csv"), "csv")
    with written.open(newline="") as file:
        assert [row["device"] for row in csv.DictReader(file)] == ["standin:0"] * 2
    assert "standin:0" in Path("out/report/report.html").read_text()


@pytest.mark.parametrize(
    "command", [["run", "parity"], ["search", "parity"], ["compare", "no.csv", "-t", "y"], ["transfer", "no"]]
)
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
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("boolit.lab.execute.train", full)
    assert run(["run", "parity", *TINY, "--device", "cpu", "--out", "out"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: cpu has too little free memory for 40 runs of relu, ")


def test_a_device_of_a_plugin(tmp_path: Path) -> None:
    line = ["--plugin", str(STANDIN), "run", "parity", *TINY, "--seeds", "1", "--device", "standin", "--out", "out", "--json"]
    done = subprocess.run([sys.executable, "-m", "boolit", *line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["trained"] == 2
    with Store(tmp_path / "out", create=False) as store:
        assert {record.environment["device"] for record in store.records()} == {"standin:0"}
