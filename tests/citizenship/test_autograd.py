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

WITH_K3 = [*SPECS, "or_il_k3", "xnor_nil_k3_halves", "and_ail_k3", "xnor_nail_k3_halves", "implies_il", "nimplied_by_ail"]
EXACT_GATES = ["and_il", "or_il", "xnor_il", "or_and_xnor_nil_d", "or_il_k3", "xnor_il_k3"]


def logits(*shape: int) -> Tensor:
    """Random logits; no two are so near that a finite difference would cross a kink of AIL."""
    return (2 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()


def gradient(spec: str, x: Tensor) -> Tensor:
    out = boolit.activation(spec)(x)
    (result,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return result


@pytest.mark.parametrize("spec", WITH_K3)
def test_first_derivatives(spec: str) -> None:
    module = boolit.activation(spec)
    assert gradcheck(module, logits(2, WIDTH), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize("spec", WITH_K3)
def test_second_derivatives(spec: str) -> None:
    module = boolit.activation(spec, dim=0)
    assert gradgradcheck(module, logits(WIDTH, 2), check_fwd_over_rev=True, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("spec", WITH_K3)
def test_second_derivatives_through_what_follows(spec: str) -> None:
    # here the gradient that comes back to the gate depends on the gate's input as well
    module = boolit.activation(spec)
    assert gradgradcheck(lambda x: module(x).square(), logits(2, WIDTH), atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("spec", WITH_K3)
def test_batched_second_derivatives(spec: str) -> None:
    x, module = logits(WIDTH), boolit.activation(spec)

    def loss(x: Tensor) -> Tensor:
        return module(x).square().sum()

    looped, batched = (torch.autograd.functional.hessian(loss, x, vectorize=vectorize) for vectorize in (False, True))
    torch.testing.assert_close(batched, looped)


@pytest.mark.parametrize("spec", EXACT_GATES)
def test_third_derivatives_of_exact_gates(spec: str) -> None:
    assert gradgradcheck(lambda x: gradient(spec, x), logits(6), atol=1e-5)
    assert gradgradcheck(lambda x: gradient(spec, x).square(), logits(6), atol=1e-4)


@pytest.mark.parametrize("spec", EXACT_GATES)
def test_exact_gates_are_smooth_at_ties_and_zeros(spec: str) -> None:
    k = 3 if spec.endswith("k3") else 2
    x = torch.tensor(list(itertools.product((0.0, -1.5, 1.5, 4.0), repeat=k))[::3], dtype=torch.float64, requires_grad=True)
    module = boolit.activation(spec)
    assert gradcheck(module, x)
    assert gradgradcheck(module, x, atol=1e-5)


@pytest.mark.parametrize("spec", APPROXIMATE)
def test_approximate_gates_are_piecewise_linear(spec: str) -> None:
    x = logits(3, WIDTH)
    assert not gradient(spec, x).requires_grad, "the slope does not depend on x"
    weights = torch.randn(3, boolit.activation(spec).out_features(WIDTH), dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(boolit.activation(spec)(x), x, weights, create_graph=True)
    (back,) = torch.autograd.grad(first, weights, x.detach())
    zero = boolit.activation(spec)(torch.zeros_like(x))  # the shift of NAIL
    torch.testing.assert_close(back + zero, boolit.activation(spec)(x.detach()))


@pytest.mark.parametrize("spec", SPECS)
def test_second_derivatives_leave_no_graph_unless_asked(spec: str) -> None:
    x = logits(2, WIDTH)
    (first,) = torch.autograd.grad(boolit.activation(spec)(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert not second.requires_grad


@pytest.mark.parametrize("spec", SPECS)
def test_a_graph_can_be_kept_and_used_again(spec: str) -> None:
    x = logits(2, WIDTH)
    out = boolit.activation(spec)(x).sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    (again,) = torch.autograd.grad(out, x)
    assert torch.equal(first, again)


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
    assert expected.requires_grad
    with torch.no_grad():
        quiet = module(x)
    with torch.inference_mode():
        inferred = module(x)
        born_here = module(torch.zeros(2, WIDTH))
    assert not quiet.requires_grad
    assert inferred.is_inference()
    assert born_here.is_inference()
    for other in (quiet, inferred, module(x.detach())):
        assert torch.equal(other, expected)


@pytest.mark.parametrize("spec", SPECS)
def test_a_parameter_is_a_fine_input(spec: str) -> None:
    parameter = torch.nn.Parameter(torch.randn(2, WIDTH))
    boolit.activation(spec)(parameter).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.shape == parameter.shape
