"""Inputs as they come: channels_last, strided, expanded, transposed, of any rank, without memory at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gate_cases import SPECS, WIDTH, assert_agree
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import boolit

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {  # (2, WIDTH, 4, 3) → a tensor with WIDTH channels along dimension 1
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
    "permuted": lambda x: x.permute(3, 1, 0, 2),
    "every other": lambda x: torch.cat([x, x], 3)[..., ::2],
    "every other channel": lambda x: torch.cat([x, x], 1)[:, ::2],
    "narrowed": lambda x: torch.cat([x, x], 1).narrow(1, 3, WIDTH),
    "expanded": lambda x: x[:1].expand(5, -1, -1, -1),
    "channels expanded": lambda x: x[:, :1].expand(-1, WIDTH, -1, -1),
    "an offset": lambda x: torch.cat([x.flatten(), x.new_zeros(1)])[1:].view(x.shape),
    "three dimensions": lambda x: x[..., 0],
    "two dimensions": lambda x: x[..., 0, 0],
    "conjugate view": lambda x: torch.complex(x, x).conj().real,
    "negative view": lambda x: torch.complex(x, x).conj().imag,
    "contiguous negative view": lambda x: torch._neg_view(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_any_layout_gives_the_same(spec: str, layout: str) -> None:
    module = boolit.activation(spec, dim=1)
    base = torch.randn(2, WIDTH, 4, 3, requires_grad=True)
    x = LAYOUTS[layout](base)
    plain = x.detach().clone(memory_format=torch.contiguous_format).resolve_neg().requires_grad_()
    out, expected = module(x), module(plain)
    assert_agree(out, expected)
    assert_agree(module(x.detach()), expected)
    weights = torch.randn_like(expected)
    (expected_grad,) = torch.autograd.grad(expected, plain, weights)
    assert_agree(torch.autograd.grad(out, base, weights)[0], torch.autograd.grad(LAYOUTS[layout](base), base, expected_grad)[0])


@pytest.mark.parametrize("spec", SPECS)
def test_channels_last_stays_channels_last(spec: str) -> None:
    module = boolit.activation(spec, dim=1)
    x = torch.randn(2, WIDTH, 4, 3).to(memory_format=torch.channels_last).requires_grad_()
    out = module(x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    volume = torch.randn(2, WIDTH, 4, 3, 2).to(memory_format=torch.channels_last_3d)
    assert module(volume).is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("spec", SPECS)
def test_a_gradient_of_any_layout(spec: str) -> None:
    module = boolit.activation(spec, dim=1)
    x = torch.randn(3, WIDTH, 5, requires_grad=True)
    out = module(x)
    dense = torch.randn(out.shape[::-1])
    negative = torch._neg_view(torch.randn(out.shape))
    for gradient in (dense.permute(2, 1, 0), torch.ones(()).expand(out.shape), negative):
        (strided,) = torch.autograd.grad(out, x, gradient, retain_graph=True)
        (plain,) = torch.autograd.grad(
            out, x, gradient.clone(memory_format=torch.contiguous_format).resolve_neg(), retain_graph=True
        )
        assert torch.equal(strided, plain)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dim", range(-5, 5))
def test_any_dim_of_five(spec: str, dim: int) -> None:
    x = torch.randn(2, 3, 1, 2, WIDTH).movedim(-1, dim).contiguous()
    out = boolit.activation(spec, dim)(x)
    assert_agree(out.movedim(dim, -1), boolit.activation(spec)(x.movedim(dim, -1).contiguous()))


@pytest.mark.parametrize("spec", SPECS)
def test_meta_tensors(spec: str) -> None:
    # they refuse to meet a tensor of another device: one made on the CPU inside a formula would show
    module = boolit.activation(spec, dim=1)
    x = torch.empty(3, WIDTH, 5, device="meta", requires_grad=True)
    out = module(x)
    assert (out.device.type, out.shape) == ("meta", (3, module.out_features(WIDTH), 5))
    assert torch.autograd.grad(out.sum(), x)[0].shape == x.shape


@pytest.mark.parametrize("spec", SPECS)
def test_fake_tensors(spec: str) -> None:
    module = boolit.activation(spec, dim=1)
    with FakeTensorMode():
        x = torch.empty(3, WIDTH, 5, requires_grad=True)
        out = module(x)
        assert (out.device.type, out.shape) == ("cpu", (3, module.out_features(WIDTH), 5))
        assert torch.autograd.grad(out.sum(), x)[0].shape == x.shape
