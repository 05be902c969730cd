"""Half precision: gates take what autocast gives them, compute in float32 and round once."""

from __future__ import annotations

import pytest
import torch
from gate_cases import SPECS, WIDTH, assert_agree
from torch import nn

import boolit
from boolit.functional import combine

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_halves_are_computed_in_float32_and_rounded_once(spec: str, dtype: torch.dtype) -> None:
    module = boolit.activation(spec)
    x = (3 * torch.randn(64, WIDTH)).to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    out, expected = module(x), module(wide)
    assert out.dtype == dtype
    assert torch.equal(out, expected.to(dtype))
    weights = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, weights)
    (expected_gradient,) = torch.autograd.grad(expected, wide, weights.float())
    assert torch.equal(gradient, expected_gradient.to(dtype))


@pytest.mark.parametrize("spec", SPECS)
def test_after_a_linear_layer_under_autocast(spec: str) -> None:
    act = boolit.activation(spec)
    net = nn.Sequential(nn.Linear(5, WIDTH), act, nn.Linear(act.out_features(WIDTH), 3))
    x = torch.randn(8, 5)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = net[0](x)
        gated = act(hidden)
        out = net(x)
    assert (hidden.dtype, gated.dtype, out.dtype) == (torch.bfloat16,) * 3
    assert torch.equal(gated, act(hidden.detach()))
    out.float().square().sum().backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("spec", SPECS)
def test_autocast_leaves_other_types_alone(spec: str) -> None:
    module = boolit.activation(spec)
    with torch.autocast("cpu", torch.bfloat16):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(4, WIDTH, dtype=dtype)
            assert_agree(module(x), boolit.activation(spec)(x))
            assert module(x).dtype == dtype


def test_combine_under_autocast() -> None:
    a, b = torch.randn(2, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert combine("or", a, b.bfloat16()).dtype == torch.float32
        assert combine("or", a.bfloat16(), b.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("spec", SPECS)
def test_float16_is_rounded_to_its_largest_number_where_the_value_is_beyond(spec: str) -> None:
    x = torch.full((2, WIDTH), 40000.0, dtype=torch.float16)
    expected = boolit.activation(spec)(x.float()).clamp(-65504, 65504)
    assert torch.equal(boolit.activation(spec)(x), expected.half())
