"""torch.func: vmap, grad, vjp, jvp, jacobians, hessians, and ensembles of models."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from gate_cases import SPECS, WIDTH, assert_agree
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap

import boolit

# torch loads its own rules of forward mode by a function it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def logits(*shape: int) -> Tensor:
    return 2 * torch.randn(*shape, dtype=torch.float64)


def scalar(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function with derivatives of every order, whatever the gate."""
    return lambda x: module(x).square().sum()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("in_dim", "out_dim"), [(0, 0), (2, 1)])
def test_vmap(spec: str, in_dim: int, out_dim: int) -> None:
    module = boolit.activation(spec)
    batch = logits(5, 3, WIDTH).movedim(0, in_dim)
    result = vmap(module, in_dim, out_dim)(batch)
    expected = torch.stack([module(x) for x in batch.unbind(in_dim)], out_dim)
    assert_agree(result, expected)


@pytest.mark.parametrize("spec", SPECS)
def test_vmap_of_what_autograd_follows(spec: str) -> None:
    module = boolit.activation(spec, dim=0)
    batch = logits(4, WIDTH, 3).requires_grad_()
    weights = logits(4, module.out_features(WIDTH), 3)
    result = vmap(module)(batch)
    assert_agree(torch.autograd.grad(result, batch, weights)[0], gradients_in_a_loop(module, batch, weights))
    (twice,) = torch.autograd.grad(vmap(vmap(module, 1, 1))(batch[..., None]).squeeze(-1), batch, weights)
    assert_agree(twice, gradients_in_a_loop(module, batch, weights))


def gradients_in_a_loop(module: nn.Module, batch: Tensor, weights: Tensor) -> Tensor:
    leaves = batch.detach().clone().requires_grad_()
    out = torch.stack([module(x) for x in leaves])
    return torch.autograd.grad(out, leaves, weights)[0]


@pytest.mark.parametrize("spec", SPECS)
def test_grad(spec: str) -> None:
    function, x = scalar(boolit.activation(spec)), logits(2, WIDTH)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(function(leaf), leaf)
    assert_agree(grad(function)(x), expected)
    assert_agree(vmap(grad(function))(x), expected)
    assert_agree(grad(lambda x: vmap(function)(x).sum())(x), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_jacobians(spec: str) -> None:
    module, x = boolit.activation(spec), logits(WIDTH)
    expected = torch.autograd.functional.jacobian(module, x)
    assert_agree(jacfwd(module)(x), expected)
    assert_agree(jacrev(module)(x), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_hessians(spec: str) -> None:
    function, x = scalar(boolit.activation(spec)), logits(WIDTH)
    expected = torch.autograd.functional.hessian(function, x)
    assert_agree(hessian(function)(x), expected, 64)
    assert_agree(jacrev(jacrev(function))(x), expected, 64)
    assert_agree(vmap(hessian(function))(x.expand(2, -1))[1], expected, 64)


@pytest.mark.parametrize("spec", SPECS)
def test_forward_mode(spec: str) -> None:
    module, x, tangent = boolit.activation(spec), logits(2, WIDTH), logits(2, WIDTH)
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.functional.jvp(module, leaf, tangent)[1]  # by two backwards
    assert_agree(jvp(module, (x,), (tangent,))[1], expected)
    with forward_ad.dual_level():
        primal, dual = forward_ad.unpack_dual(module(forward_ad.make_dual(x, tangent)))
    assert_agree(primal, module(x))
    assert_agree(dual, expected)


def nets(spec: str, count: int) -> list[nn.Module]:
    out = boolit.activation(spec).out_features(WIDTH)
    return [nn.Sequential(nn.Linear(5, WIDTH), boolit.activation(spec), nn.Linear(out, 1)) for _ in range(count)]


@pytest.mark.parametrize("spec", SPECS)
def test_stacked_models(spec: str) -> None:
    models = nets(spec, 4)
    parameters, buffers = stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")
    x = torch.randn(4, 6, 5)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(skeleton, (parameters, buffers), (x,)).square().mean()

    losses = vmap(loss)(parameters, buffers, x)
    losses.sum().backward()
    for i, model in enumerate(models):
        alone = model(x[i]).square().mean()
        alone.backward()
        torch.testing.assert_close(losses[i], alone)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameters[name].grad[i], parameter.grad)
