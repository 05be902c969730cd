"""Derivatives of every gate: first, second and third, backward, forward and batched, on ties and zeros."""

from __future__ import annotations

import itertools

import pytest
import torch
from gate_cases import APPROXIMATE, EXACT, SPECS, WIDTH
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import boolit

# torch loads its own rules of forward mode by a function it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

MORE = [*SPECS, "or_il_k3", "xnor_nil_k3_halves", "and_ail_k3", "xnor_nail_k3_halves", "implies_il", "nimplied_by_ail"]
EXACT_GATES = ["and_il", "xnor_il", "or_and_xnor_nil_d", "or_il_k3", "xnor_il_k3"]


def logits(*shape: int) -> Tensor:
    """Return random logits; no two are so near that a finite difference would cross a kink of AIL."""
    return (2 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def gradient(spec: str, x: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(boolit.activation(spec)(x).sum(), x, create_graph=True)
    return result


@pytest.mark.parametrize("spec", MORE)
def test_first_and_second_derivatives(spec: str) -> None:
    module = boolit.activation(spec)
    x = logits(2, WIDTH)
    assert gradcheck(module, x, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(module, x, check_fwd_over_rev=True, atol=1e-5, fast_mode=True)
    # the gradient that comes back to the gate depends on the gate's input as well
    assert gradgradcheck(lambda x: module(x).square(), x, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("spec", MORE)
def test_batched_second_derivatives(spec: str) -> None:
    x, module = logits(WIDTH), boolit.activation(spec)

    def loss(x: Tensor) -> Tensor:
        return module(x).square().sum()

    looped, batched = (torch.autograd.functional.hessian(loss, x, vectorize=vectorize) for vectorize in (False, True))
    torch.testing.assert_close(batched, looped)


@pytest.mark.parametrize("spec", EXACT_GATES)
def test_third_derivatives_of_exact_gates(spec: str) -> None:
    assert gradgradcheck(lambda x: gradient(spec, x).square(), logits(6), atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("spec", EXACT_GATES)
def test_exact_gates_are_smooth_at_ties_and_zeros(spec: str) -> None:
    k = 3 if spec.endswith("k3") else 2
    x = torch.tensor(list(itertools.product((0.0, -1.5, 1.5, 4.0), repeat=k))[::3], dtype=torch.float64, requires_grad=True)
    module = boolit.activation(spec)
    assert gradcheck(module, x)
    assert gradgradcheck(module, x, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("spec", APPROXIMATE)
def test_approximate_gates_are_piecewise_linear(spec: str) -> None:
    x, module = logits(3, WIDTH), boolit.activation(spec)
    assert not gradient(spec, x).requires_grad, "the slope does not depend on x"
    weights = torch.randn(3, module.out_features(WIDTH), dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(module(x), x, weights, create_graph=True)
    (back,) = torch.autograd.grad(first, weights, x.detach())
    zero = module(torch.zeros_like(x))  # the shift of NAIL
    torch.testing.assert_close(back + zero, module(x.detach()))


@pytest.mark.parametrize("spec", [*EXACT, *APPROXIMATE])
def test_changing_the_input_in_place_is_noticed_or_harmless(spec: str) -> None:
    x = logits(2, WIDTH)
    (expected,) = torch.autograd.grad(boolit.activation(spec)(x).sum(), x)
    inner = x.clone()
    out = boolit.activation(spec)(inner)
    inner.detach().zero_()
    if spec in APPROXIMATE:  # keeps bits, not the input
        assert torch.equal(torch.autograd.grad(out.sum(), x)[0], expected)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(out.sum(), x)


@pytest.mark.parametrize("spec", SPECS)
def test_without_gradients(spec: str) -> None:
    x, module = logits(2, WIDTH), boolit.activation(spec)
    expected = module(x)
    with torch.no_grad():
        quiet = module(x)
    with torch.inference_mode():
        inferred = module(x)
    assert (expected.requires_grad, quiet.requires_grad, inferred.is_inference()) == (True, False, True)
    for other in (quiet, inferred, module(x.detach())):
        assert torch.equal(other, expected)
    (first,) = torch.autograd.grad(expected.sum(), x, retain_graph=True)
    assert torch.equal(first, torch.autograd.grad(expected.sum(), x)[0]), "a graph can be used again"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_half_precision_is_computed_in_float32_and_rounded_once(spec: str, dtype: torch.dtype) -> None:
    module = boolit.activation(spec)
    x = (3 * torch.randn(64, WIDTH)).to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    out, expected = module(x), module(wide)
    assert torch.equal(out, expected.to(dtype))
    weights = torch.randn_like(out)
    (slopes,) = torch.autograd.grad(out, x, weights)
    (expected_slopes,) = torch.autograd.grad(expected, wide, weights.float())
    assert torch.equal(slopes, expected_slopes.to(dtype))


@pytest.mark.parametrize("spec", ["or_ail", "xnor_il", "or_and_xnor_nail_d"])
def test_autocast(spec: str) -> None:
    act = boolit.activation(spec)
    net = torch.nn.Sequential(torch.nn.Linear(5, WIDTH), act, torch.nn.Linear(act.out_features(WIDTH), 3))
    x = torch.randn(8, 5)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = net[0](x)
        gated, out = act(hidden), net(x)
        assert act(torch.randn(2, WIDTH)).dtype == torch.float32, "other types stay as they are"
    assert gated.dtype == out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters())
