"""What docs/design.md promises a newcomer: one file adds an activation, a dataset, a model, a study, a table of the report."""

import re
from pathlib import Path

import pytest

from boolit.cli._app import run
from boolit.lab.common import plugins

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")

FILES = {
    "activation.py": """
from boolit.nn import Custom, register

register("own_product", lambda dim: Custom(lambda x: x[..., 0::2] * x[..., 1::2], dim, name="own_product"))
""",
    "dataset.py": """
from typing import Literal

import torch

from boolit.lab.common.random import generator
from boolit.lab.datasets import Dataset, Source, Split, register


@register
class OwnSigns(Source):
    name: Literal["own_signs"] = "own_signs"

    def load(self) -> Dataset:
        x = torch.randn(128, 2, generator=generator(0, "own_signs"))
        split = Split(x, (x.prod(1, keepdim=True) > 0).float())
        return Dataset({"train": split, "test": split}, task="binary", outputs=1)
""",
    "model.py": """
from typing import Literal

from boolit.lab.models import register
from boolit.lab.models.mlp import Mlp


@register
class OwnMlp(Mlp):
    name: Literal["own_mlp"] = "own_mlp"
""",
    "table.py": """
from boolit.lab.results.names import map_of
from boolit.lab.reports.tables import register
from boolit.lab.reports.tables.model import ResultCell, ResultRow, ResultTable


@register
def own_table(records):
    rows = {record.config.activation for record in records}
    return ResultTable("Own table", ("runs",), tuple(ResultRow(n, map_of(n), (ResultCell("7 of mine"),)) for n in rows))
""",
}
STUDY = """
title = "Own study"

[data]
name = "own_signs"

[model]
name = "own_mlp"

[sweep]
activation = ["relu", "own_product"]
width = 4
depth = 1
seeds = 2

[training]
learning_rate = 0.01
epochs = 1
batch = 64

[metric]
name = "accuracy"

[profiles.quick]
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded here is forgotten."""
    monkeypatch.setattr(plugins, "_LOADED", {})


def test_one_file_each_adds_an_activation_a_dataset_a_model_a_study_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "own.toml").write_text(STUDY)
    loaded = [part for name in FILES for part in ("--plugin", str(tmp_path / name))]
    assert run([*loaded, "run", str(tmp_path / "own.toml"), "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr().out
    assert "own_product" in told
    assert "Own table" in told
    assert "7 of mine" in (tmp_path / "out" / "report" / "report.html").read_text(encoding="utf-8")


def test_every_file_that_the_design_names_is_there() -> None:
    """The tree and the walks: a name ending in .py, .toml or .csv is a file of the package, a folder is one of its folders."""
    package = ROOT / "src" / "boolit"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.suffix in (".py", ".cpp", ".csv")}
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.(?:py|cpp|csv))`", DESIGN))
    known = {name for name in named if (ROOT / name).is_file() or any(f"/{file}".endswith(f"/{name}") for file in files)}
    assert named - known == set()
    assert len(named) > 30
    folders = {path.name for path in package.rglob("*") if path.is_dir()}
    assert set(re.findall(r"^ +([a-z_]+)/ ", DESIGN, re.MULTILINE)) <= folders


def test_no_room_is_a_maze() -> None:
    package = ROOT / "src" / "boolit"
    rooms = [path for path in (package, *package.rglob("*")) if path.is_dir() and path.name != "__pycache__"]
    assert max(len(list(room.glob("*.py"))) for room in rooms) <= 15
    assert len(list(package.rglob("*.py"))) <= 235
