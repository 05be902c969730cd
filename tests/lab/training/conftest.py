"""Configurations of small runs, as a planner would write them, trained on one thread: the tests share the machine."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from boolit.lab.runs import RunConfig

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # there may be AMX in name only; see bfloat16.py

Config = Callable[..., RunConfig]
SMALL_PARITY = {"name": "parity", "train": 256, "test": 200}


@pytest.fixture
def config() -> Config:
    """A run of parity; ``training`` is merged, everything else replaced."""

    def make(seed: int = 0, activation: str = "xnor_ail", **changes: Any) -> RunConfig:
        training: Mapping[str, Any] = changes.pop("training", {})
        recipe = {"learning_rate": 0.01, "weight_decay": 1e-4, "epochs": 3, "batch": 32, **training}
        base = {"data": SMALL_PARITY, "model": {"name": "mlp"}, "activation": activation, "width": [4, 2], "seed": seed}
        return RunConfig.from_dict(base | {"training": recipe} | changes)

    return make


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """In all of these tests."""
