"""I-RAVEN as a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boolit.lab.common.random import keys
from boolit.lab.datasets import load, source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.iraven import downscale, shuffle_panels, stored_samples
from boolit.lab.datasets.iraven.drawing import draw_problem
from boolit.lab.datasets.iraven.problems import make_problem

TWO = ["center_single", "distribute_four"]


def loaded(**options: Any) -> Dataset:
    return load(source({"name": "iraven", "configurations": TWO, "problems": 10, "side": 20, **options}))


def test_problems_are_generated_and_kept(folder: Path) -> None:
    data = loaded()
    assert data.description.samples == {"train": 12, "valid": 4, "test": 4}
    assert data.description.extra_metrics == ("accuracy_center_single", "accuracy_distribute_four")
    problem = make_problem("distribute_four", 1234, 9)
    assert data.splits["test"].y[3] == problem.target
    panels = data.encode(data.splits["test"].x[3:])
    assert torch.equal(panels[0], torch.from_numpy(downscale(draw_problem(problem), 20)).float())
    load.cache_clear()
    times = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}
    more = loaded(problems=20)
    assert torch.equal(more.splits["train"].y[:6], data.splits["train"].y[:6])
    loaded()
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("names", [["center"], ["center_single", "center_single"]])
def test_unknown_and_repeated_configurations_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="is unknown or named twice"):
        source({"name": "iraven", "configurations": names})


def test_shuffling_keeps_the_answer_and_the_third_row() -> None:
    x = stored_samples(torch.arange(400)).expand(2, -1, -1)
    y = torch.arange(400).remainder(8).expand(2, -1)
    drawn, targets = shuffle_panels(x, y, keys([1, 2], "draw"), 0)
    panels = drawn[..., 1:]
    assert torch.equal(panels[..., 8:].sort(-1).values, torch.arange(8, 16).int().expand(2, 400, -1))
    assert torch.equal(panels[..., 8:].gather(-1, targets.unsqueeze(-1)).squeeze(-1), (y + 8).int())
    assert torch.equal(panels[..., 6:8], x[..., 7:9])
    swapped = panels[..., 0] == 3
    assert torch.equal(panels[swapped][:, :6], torch.tensor([3, 4, 5, 0, 1, 2]).int().expand(int(swapped.sum()), -1))
    assert 0.4 < float(swapped.float().mean()) < 0.6
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.usefixtures("folder")
def test_the_accuracy_is_that_of_each_configuration() -> None:
    data = loaded()
    assert data.extra_metrics is not None
    right = torch.nn.functional.one_hot(data.splits["test"].y, 8).float()
    right[2:] = 0  # those of the second configuration are wrong, but for answers of 0
    found = data.extra_metrics("test", right.unsqueeze(0))
    assert found["accuracy_center_single"].tolist() == [1.0]
    assert found["accuracy_distribute_four"].tolist() == [float((data.splits["test"].y[2:] == 0).double().mean())]


def test_downscaling_is_the_mean_of_the_area() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 160, 160), np.uint8)
    expected = images.reshape(2, 80, 2, 80, 2).mean((2, 4))
    assert np.abs(downscale(images, 80) - expected).max() <= 0.5
