"""Epochs before the schedule, at a rate of their own."""

import pytest
import torch
from pydantic import ValidationError
from torch.optim.lr_scheduler import CosineAnnealingLR

from boolit.lab.runs import RunConfig
from boolit.lab.training import Recipe
from boolit.lab.training.optimisers import epoch_rates

STEPS = 7


def recipe(**options: object) -> Recipe:
    return Recipe.model_validate({"epochs": 25, "batch": 4, "schedule": "cosine", "learning_rate": 0.01} | options)


def test_the_paper_s_schedule() -> None:
    """One epoch at 1e-5, then torch's own cosine over the other 24 (a:transfer)."""
    highest = torch.tensor([0.01], dtype=torch.float64)
    own = recipe(prelude=1)
    rates = torch.cat([epoch_rates(own, epoch, STEPS, highest, highest) for epoch in range(25)]).squeeze(1)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)
    scheduler, theirs = CosineAnnealingLR(optimiser, 24 * STEPS), []
    for _ in range(24 * STEPS):
        theirs.append(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()
    assert rates[:STEPS].tolist() == [1e-5] * STEPS
    assert torch.allclose(rates[STEPS:], torch.tensor(theirs, dtype=torch.float64))


def test_runs_without_it_keep_their_keys() -> None:
    assert not {"prelude", "prelude_rate"} & RunConfig.options(recipe()).keys()
    assert RunConfig.options(recipe(prelude=2, prelude_rate=1e-4))["prelude_rate"] == 1e-4


def test_it_is_shorter_than_the_training() -> None:
    with pytest.raises(ValidationError, match="prelude is 25 and warmup 0"):
        recipe(prelude=25)
