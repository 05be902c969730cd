"""Training on another device: checkpoints move between devices, and no step waits for the device."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.common import devices
from boolit.lab.common.devices import use_device
from boolit.lab.datasets import load, source
from boolit.lab.models import family
from boolit.lab.training import Checkpoint, Job, Recipe, train
from boolit.lab.training.train import new_training


def job(runs: int = 2, **recipe: Any) -> Job:
    model = family({"name": "mlp", "normalization": "batch", "dropout": 0.1})
    each = Recipe.model_validate({"learning_rate": 0.01, "epochs": 3, "batch": 16, **recipe})
    data = load(source({"name": "parity", "train": 64, "test": 40}))
    return Job(data, model, "or_ail", (4, 4), (each,) * runs, tuple(range(runs)))


@pytest.mark.parametrize("first", ["cpu", "standin"])
def test_a_checkpoint_resumes_on_another_device(standin: ModuleType, tmp_path: Path, first: str) -> None:
    expected = train(job())
    with use_device(first):
        assert train(job(), checkpoint=Checkpoint(tmp_path), callback=lambda training: training.steps < 6) is None
    with use_device(standin.NAME if first == "cpu" else "cpu"):
        resumed = train(job(), checkpoint=Checkpoint(tmp_path))
    assert expected is not None
    assert resumed is not None
    assert [outcome.metrics for outcome in resumed] == [outcome.metrics for outcome in expected]


def test_no_step_reads_from_the_device(standin: ModuleType) -> None:
    with use_device(standin.NAME):
        training = new_training(job())
        training.begin_epoch()
        training.step()
        standin.transfers.clear()
        training.step()
    assert standin.transfers["read"] == standin.transfers["to the CPU"] == 0


def test_a_device_is_that_of_the_innermost_block(standin: ModuleType) -> None:
    with use_device(standin.NAME) as outer:
        with use_device("cpu"):
            assert devices.present_device().type == "cpu"
        with use_device(None) as inner:
            assert inner == outer == torch.device("standin:0")
    with pytest.raises(UserError, match="there is no device 'standin:3' here"), use_device("standin:3"):
        pass
