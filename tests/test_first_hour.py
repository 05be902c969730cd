"""A user's first hour: the wheel in an environment without boolit, the README's blocks one by one, a table of their own.

The wheel is built as on a machine without a compiler, so it computes by formulas; `make` installs one with kernels. What boolit
depends on is taken from the present environment: downloading torch again would show nothing about boolit.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
WINE = """
from sklearn.datasets import load_wine

rows, labels, names = (lambda wine: (wine.data, wine.target, wine.feature_names))(load_wine())
with open("wine.csv", "w") as file:
    print(*names, "cultivar", sep=",", file=file)
    for row, label in zip(rows, labels):
        print(*row, "ABC"[label], sep=",", file=file)
"""


class Machine:
    """An environment without boolit until its wheel is installed, and a folder to work in; there is no screen."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        venv.create(folder / "env", with_pip=False)
        self.bin = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        hidden = ("PYTHONPATH", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment |= {"OMP_NUM_THREADS": "1", "CC": "false", "CXX": "false"}

    def run(self, *command: str | Path, code: int = 0) -> str:
        """What a command wrote, to standard error if it was to fail."""
        done = subprocess.run(list(map(str, command)), cwd=self.work, env=self.environment, capture_output=True, text=True)
        assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("first-hour")
    new = Machine(folder)
    tree = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", folder / "sources" / "src", ignore=tree)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder / "sources")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    new.run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, folder / "sources")
    python = new.bin / "python"
    (wheel,) = folder.glob("boolit-*.whl")
    new.run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    own = Path(new.run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # after the environment's own packages
    return new


def test_the_wheel_is_what_is_imported(machine: Machine) -> None:
    place = machine.run(machine.bin / "python", "-c", "import boolit; print(boolit.__file__)").strip()
    assert Path(place).is_relative_to(machine.bin.parent)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {number}" for number in range(1, len(BLOCKS) + 1)])
def test_a_block_of_the_readme_runs_as_pasted(machine: Machine, block: str) -> None:
    (machine.work / "pasted.py").write_text(block)
    machine.run(machine.bin / "python", "pasted.py")


def test_an_own_table_is_compared_and_predicted(machine: Machine) -> None:
    machine.run(machine.bin / "python", "-c", WINE)
    boolit = machine.bin / "boolit"
    options = ("--activations", "relu,or_ail", "--splits", "5", "--rates", "0.01", "--epochs", "20")
    told = machine.run(boolit, "compare", "wine.csv", "--target", "cultivar", *options)
    assert "ORₐᵢₗ" in told
    folder = machine.work / "results" / "wine"
    machine.run(boolit, "predict", folder / "best.safetensors", "wine.csv", "--out", "predicted.csv")
    with (machine.work / "predicted.csv").open() as file:
        rows = list(csv.reader(file))
    assert len(rows) == 1 + 178
    page = folder / "report" / "report.html"
    page.unlink()
    *_, told = machine.run(boolit, "report", folder, "--open", code=2).splitlines()
    assert told.startswith("error: there is no desktop or browser")
    assert page.is_file()
