"""Kernels of stacked training against their implementation in torch, in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from boolit.lab import kernels
from boolit.lab.kernels import ONE_PIXEL, batch_norm, look_up
from boolit.lab.models.mlp import Mlp
from boolit.lab.training.optimizers import StackedOptimizer
from boolit.lab.training.recipe import OPTIMIZERS

pytestmark = pytest.mark.skipif(kernels.LIBRARY is None, reason="the kernels are not built or turned off")

SIZES = [(5, 7), (1,), (4099,)]
HYPER = {
    "weight_decay": torch.tensor([0.0, 0.1, 0.01]),
    "momentum": torch.tensor([0.1, 0.9, 0.6]),
    "beta1": torch.tensor([0.9, 0.1, 0.4]),
    "beta2": torch.tensor([0.999, 0.95, 0.5]),
    "eps": torch.tensor([1e-8, 1e-3, 1e-6]),
}


class Weights(nn.Module):
    """Parameters of three stacked runs, the last one of a normalization layer."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        values = [nn.Parameter(torch.randn(3, *size, generator=generator)) for size in SIZES]
        self.linear, self.norm = nn.ParameterList(values[:2]), nn.ParameterList(values[2:])


class Factors(Mlp):
    def rate_factor(self, name: str) -> float:
        return {"linear.0": 1.0, "linear.1": 10.0, "norm.0": 0.5}[name]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw"])
def test_optimizer_steps(rule: str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    models = Weights(), Weights().double()
    ours, theirs = (StackedOptimizer(model, Factors(), OPTIMIZERS.get(rule), HYPER, decay_norm=False) for model in models)
    rates = torch.tensor([[0.01, 0.3, 0.0]] * 3, dtype=torch.float64)
    for step in range(3):
        gradients = [torch.randn(3, *size) for size in SIZES]
        for optimizer in (ours, theirs):
            optimizer.prepare(0, rates)
            products = zip(optimizer.parameters, gradients, strict=True)
            losses = sum((values * gradient.to(values)).flatten(1).sum(1) for values, gradient in products)
            optimizer.step(losses, torch.ones_like(losses), step)
    torch.set_num_threads(before)
    assert ours._kernel is not None
    assert theirs._kernel is None
    for values, expected in zip([ours.values, *ours.state.values()], [theirs.values, *theirs.state.values()], strict=True):
        torch.testing.assert_close(values.double(), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([2, 3, 16, 31, 100, 1025, 3000]), st.booleans())
def test_batch_norm(runs: int, features: int, samples: int, strided: bool) -> None:
    torch.manual_seed(samples)
    x = 100 + torch.randn(runs, features, samples)
    weight, bias = (torch.randn(runs, features + 3)[:, :features] if strided else torch.randn(runs, features) for _ in range(2))
    running = [torch.randn(runs, features), torch.rand(runs, features)]
    above = torch.randn_like(x)
    inputs = [value.clone().requires_grad_() for value in (x, weight, bias)]
    statistics = [value.clone() for value in running]
    out = batch_norm(inputs[0], *statistics, *inputs[1:], 0.1, 1e-5)
    assert out.grad_fn is not None
    assert "_BatchNorm" in type(out.grad_fn).__name__
    gradients = torch.autograd.grad(out, inputs, above)

    wide = [value.double().requires_grad_() for value in (x, weight, bias)]
    mean, var, scale, shift = (v.double().reshape(-1) for v in (*running, *wide[1:]))
    expected = F.batch_norm(wide[0].reshape(1, -1, samples), mean, var, scale, shift, True, 0.1, 1e-5).view_as(x)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-3)
    for value, other in zip(statistics, (mean, var), strict=True):
        torch.testing.assert_close(value.double().flatten(), other, rtol=1e-5, atol=1e-5)
    # Two nearly equal samples far from 0 make the gradient ill-conditioned: torch's own float32 shows by how much.
    narrow = [value.clone().requires_grad_() for value in (x, weight, bias)]
    moments = (value.flatten().clone() for value in running)
    scale32, shift32 = (value.reshape(-1) for value in narrow[1:])
    single = F.batch_norm(narrow[0].reshape(1, -1, samples), *moments, scale32, shift32, True, 0.1, 1e-5).view_as(x)
    references = torch.autograd.grad(expected, wide, above.double())
    for value, other, of_torch in zip(gradients, references, torch.autograd.grad(single, narrow, above), strict=True):
        conditioning = 4 * float((of_torch.double() - other).abs().max())
        torch.testing.assert_close(value.double(), other, rtol=1e-3, atol=2e-3 + conditioning)


@settings(max_examples=25)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([torch.uint8, torch.float32, torch.float64]), st.integers(0, 99))
def test_look_up(height: int, width: int, dtype: torch.dtype, seed: int) -> None:
    drawn = torch.Generator().manual_seed(seed)
    images = torch.randint(1, 255, (5, height, width), generator=drawn).to(dtype)
    origins = (3 * torch.randn(5, 2, 3, generator=drawn).double() * ONE_PIXEL).round().long()
    library, kernels.LIBRARY = kernels.LIBRARY, None
    try:
        expected = look_up(images, origins)
    finally:
        kernels.LIBRARY = library
    assert torch.equal(look_up(images, origins), expected)


def test_the_identity_and_a_shift() -> None:
    images = torch.arange(12, dtype=torch.uint8).view(1, 3, 4)
    identity = torch.tensor([[[1, 0, 0], [0, 1, 0]]]) * ONE_PIXEL
    assert torch.equal(look_up(images, identity), images)
    right = identity + torch.tensor([[[0, 0, -1], [0, 0, 0]]]) * ONE_PIXEL
    assert torch.equal(look_up(images, right), F.pad(images, (1, 0))[..., :4])
