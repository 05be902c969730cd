"""Folders of images: encoded once, then compared like a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from boolit.lab.compare import CompareConfig
from boolit.lab.compare.job import CompareJob
from boolit.lab.models.resnet18 import Resnet18


def test_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    torch.manual_seed(0)
    torch.save(Resnet18().state_dict(), tmp_path / "weights.pth")
    random = np.random.default_rng(0)
    for kind, level in (("bright", 200), ("dark", 20)):
        (tmp_path / "pictures" / kind).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(level, level + 50, (16, 16, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / kind / f"{number}.png")
    config = CompareConfig(
        tmp_path / "pictures",
        activations=("relu", "or_ail"),
        weights=tmp_path / "weights.pth",
        splits=5,
        rates=(0.01,),
        epochs=2,
    )
    job = CompareJob.prepare(config, progress=False)
    assert (config.name, job.table.classes, job.table.x.shape) == ("pictures", ["bright", "dark"], (20, 512))
    monkeypatch.setattr("boolit.lab.compare.runs.encode_photographs", lambda *_: pytest.fail("encoded again"))
    result = CompareJob.prepare(config, progress=False).run(tmp_path / "out", progress=False)
    assert result.verdict is not None
    assert len(result.verdict.scores["relu"]) == 5
