"""One file adds an activation, a dataset, a model, a study or a table of the report."""

from pathlib import Path

import pytest

from boolit.cli._app import run
from boolit.lab.common import plugins

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
from boolit.lab.reports.tables import Table, register


@register
def own_table(frame):
    return Table.from_frame("Own table", frame.groupby("activation")[["seed"]].count().rename(columns={"seed": "my runs"}))
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
    """Forget the plug-ins that a test loads."""
    monkeypatch.setattr(plugins, "_LOADED", {})


def test_one_file_each_adds_an_activation_a_dataset_a_model_a_study_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "own.toml").write_text(STUDY)
    loaded = [part for name in FILES for part in ("--plugin", str(tmp_path / name))]
    assert run([*loaded, "run", str(tmp_path / "own.toml"), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "own_product" in printed
    assert "Own table" in printed
    assert "my runs" in (tmp_path / "out" / "report" / "report.html").read_text(encoding="utf-8")
