"""Small jobs, trained on one thread."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from boolit.lab.common.random import generator
from boolit.lab.datasets import load, source
from boolit.lab.datasets.base import Dataset, Split
from boolit.lab.models import family
from boolit.lab.training import Job, Recipe

# A virtual machine may announce AMX and not have it; the first product in bfloat16 would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

MakeJob = Callable[..., Job]


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Share the machine with other tests."""


@pytest.fixture
def make_job() -> MakeJob:
    """Return a function that makes jobs; further options are the recipe's."""

    def make(
        data: dict[str, Any] | Dataset = {"name": "parity", "train": 256, "test": 200},  # noqa: B006
        model: dict[str, Any] = {"name": "mlp"},  # noqa: B006
        widths: tuple[int, ...] = (4, 2),
        activation: str = "xnor_ail",
        seeds: tuple[int, ...] = (0,),
        recipes: list[dict[str, Any]] | None = None,
        valid: bool = False,
        **recipe: Any,
    ) -> Job:
        dataset = data if isinstance(data, Dataset) else load(source(data))
        if valid:  # with noise as targets, so that runs stop early at different epochs
            drawn = generator(0, "valid")
            x = torch.randn(64, *dataset.inputs, generator=drawn)
            y = torch.randint(2, (64, 1), generator=drawn).float()
            dataset = replace(dataset, splits={**dataset.splits, "valid": Split(x, y)})
        base = {"learning_rate": 0.01, "weight_decay": 1e-4, "epochs": 3, "batch": 32} | recipe
        each = [base | own for own in recipes or [{}] * len(seeds)]
        return Job(dataset, family(model), activation, widths, tuple(map(Recipe.model_validate, each)), seeds)

    return make
