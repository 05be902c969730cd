"""The stacked optimisers and schedules give every run what torch's give a run alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from boolit.lab.models import family
from boolit.lab.training.optimisers import OPTIMISERS, FlatParameters, learning_rates
from boolit.lab.training.recipe import Optimiser

RUNS, STEPS = 6, 40
HYPER = {
    "learning_rate": torch.tensor([1e-3, 1e-2, 3e-2, 1e-3, 1e-4, 1e-2]),
    "beta1": torch.tensor([0.9, 0.5, 0.0, 0.99, 0.9, 0.8]),
    "beta2": torch.tensor([0.999, 0.9, 0.95, 0.99999, 0.5, 0.999]),
    "eps": torch.tensor([1e-8, 1e-6, 1e-10, 1e-8, 1e-3, 1e-8]),
    "weight_decay": torch.tensor([0.0, 1e-4, 1e-2, 0.1, 0.0, 0.5]),
    "momentum": torch.tensor([0.0, 0.9, 0.5, 0.99, 0.9, 0.0]),
    "peak": torch.tensor([0.1, 0.3, 0.5, 0.25, 0.45, 0.3]),
}
HYPER = {name: values.double() for name, values in HYPER.items()}


def of_torch(kind: Optimiser, parameter: Tensor, run: int) -> torch.optim.Optimizer:
    own = {name: float(values[run]) for name, values in HYPER.items()}
    if kind == "sgd":
        return torch.optim.SGD([parameter], own["learning_rate"], own["momentum"], weight_decay=own["weight_decay"])
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    betas = (own["beta1"], own["beta2"])
    return make([parameter], own["learning_rate"], betas, own["eps"], own["weight_decay"])


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_run_goes_the_way_of_torchs_optimiser(kind: Optimiser, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(RUNS, 9, dtype=dtype), torch.randn(STEPS, RUNS, 9, dtype=dtype)
    values = start.clone()
    ours = OPTIMISERS[kind](values, HYPER)
    ours.prepare(0, HYPER["learning_rate"].expand(15, -1))
    for index in range(15):
        ours.step([gradients[index].clone()], index)
    ours.prepare(15, HYPER["learning_rate"].expand(STEPS - 15, -1))
    for index in range(STEPS - 15):
        ours.step([gradients[15 + index].clone()], index)
    for run in range(RUNS):
        parameter = start[run].clone().requires_grad_()
        theirs = of_torch(kind, parameter, run)
        for gradient in gradients:
            parameter.grad = gradient[run].clone()
            theirs.step()
        torch.testing.assert_close(values[run], parameter.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_columns_have_the_rates_their_factors_say(kind: Optimiser) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(RUNS, 9, dtype=torch.float64), torch.randn(STEPS, RUNS, 9, dtype=torch.float64)
    values, factors = start.clone(), torch.tensor([1.0, 10.0, 0.5]).double().repeat_interleave(3)
    ours = OPTIMISERS[kind](values, HYPER, factors)
    ours.prepare(0, HYPER["learning_rate"].expand(STEPS, -1))
    for index in range(STEPS):
        ours.step([gradients[index].clone()], index)
    for run in range(RUNS):
        for columns, factor in ((slice(0, 3), 1.0), (slice(3, 6), 10.0), (slice(6, 9), 0.5)):
            parameter = start[run, columns].clone().requires_grad_()
            theirs = of_torch(kind, parameter, run)
            theirs.param_groups[0]["lr"] *= factor
            for gradient in gradients:
                parameter.grad = gradient[run, columns].clone()
                theirs.step()
            torch.testing.assert_close(values[run, columns], parameter.detach(), rtol=1e-6, atol=1e-6)


def test_a_model_names_its_factors_by_parameter() -> None:
    model = family({"name": "mlp"}).build(2, [3], 1, [4], "relu")
    assert FlatParameters(model).factors is None
    flat = FlatParameters(model, {"linear.1.weight": 10.0})
    names = [name for name, values in model.named_parameters() for _ in range(values[0].numel())]
    assert flat.factors is not None
    assert flat.factors.tolist() == [10.0 if name == "linear.1.weight" else 1.0 for name in names]


@pytest.mark.parametrize("total", [5, 40, 333])
def test_one_cycle_is_torchs(total: int) -> None:
    ours = learning_rates("one-cycle", torch.arange(total), total, HYPER["learning_rate"], HYPER["peak"])
    for run in range(RUNS):
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser,
            float(HYPER["learning_rate"][run]),
            total,
            pct_start=float(HYPER["peak"][run]),
            cycle_momentum=False,
        )
        theirs = []
        for _ in range(total):
            theirs.append(schedule.get_last_lr()[0])
            optimiser.step()
            schedule.step() if len(theirs) < total else None
        torch.testing.assert_close(ours[:, run], torch.tensor(theirs, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def test_cosine_is_torchs() -> None:
    ours = learning_rates("cosine", torch.arange(30), 30, HYPER["learning_rate"], HYPER["peak"])
    for run in range(RUNS):
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], float(HYPER["learning_rate"][run]))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 30)
        for step in range(30):
            assert float(ours[step, run]) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9, abs=1e-12)
            optimiser.step()
            schedule.step()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 50), st.integers(0, 20), st.sampled_from(["constant", "cosine"]))
def test_warm_up_rises_linearly_to_the_schedule(length: int, warmup: int, schedule: str) -> None:
    total = length + warmup
    rates = learning_rates(schedule, torch.arange(total), total, torch.tensor([2.0]), torch.tensor([0.3]), warmup).squeeze(1)  # type: ignore[arg-type]
    torch.testing.assert_close(rates[:warmup], 2 * torch.arange(1, warmup + 1, dtype=torch.float64) / max(warmup, 1))
    plain = learning_rates(schedule, torch.arange(length), length, torch.tensor([2.0]), torch.tensor([0.3])).squeeze(1)  # type: ignore[arg-type]
    torch.testing.assert_close(rates[warmup:], plain)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_one_cycle_stays_between_its_ends_however_short(total: int, peak: float) -> None:
    rates = learning_rates("one-cycle", torch.arange(total), total, torch.ones(1), torch.tensor([peak]))
    assert bool(rates.isfinite().all())
    assert float(rates.min()) >= 1 / 25 / 1e4 - 1e-12
    assert float(rates.max()) <= 1 + 1e-12


def test_the_models_own_tensors_follow_the_flat_ones() -> None:
    model = family({"name": "mlp", "normalisation": "batch"}).build(3, (4,), 2, [6], "prelu")
    model.initialise([1, 2, 3])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flat = FlatParameters(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    flat.values.mul_(2)
    for name, value in model.named_parameters():
        assert torch.equal(value.detach(), 2 * before[name])


def test_flat_gradients_are_the_layers_gradients() -> None:
    model = family({"name": "mlp"}).build(2, (3,), 1, [4], "tanh")
    model.initialise([1, 2])
    flat, x = FlatParameters(model), torch.randn(2, 8, 3)
    wanted = torch.autograd.grad(model(x).square().mean((1, 2)).sum(), list(model.parameters()))
    ours = flat.gradients_of(model(x).square(), torch.full((2, 8, 1), 1 / 8))
    for own, gradient in zip(ours, wanted, strict=True):
        torch.testing.assert_close(own, gradient)
