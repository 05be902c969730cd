"""Inputs as they come: strided, expanded, of any rank; dim and the channels; what is kept for the backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gate_cases import FORMS, GATES, SPECS, WIDTH, assert_agree
from torch import Tensor

import boolit
from boolit import functional

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {  # (2, WIDTH, 4, 3) → a tensor with WIDTH channels along dimension 1
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "permuted": lambda x: x.permute(3, 1, 0, 2),
    "every other": lambda x: torch.cat([x, x], 3)[..., ::2],
    "every other channel": lambda x: torch.cat([x, x], 1)[:, ::2],
    "expanded": lambda x: x[:1].expand(5, -1, -1, -1),
    "an offset": lambda x: torch.cat([x.flatten(), x.new_zeros(1)])[1:].view(x.shape),
    "three dimensions": lambda x: x[..., 0],
    "two dimensions": lambda x: x[..., 0, 0],
    "negative view": lambda x: torch.complex(x, x).conj().imag,
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
    weights = torch.randn_like(expected)
    (expected_grad,) = torch.autograd.grad(expected, plain, weights)
    assert_agree(torch.autograd.grad(out, base, weights)[0], torch.autograd.grad(LAYOUTS[layout](base), base, expected_grad)[0])


@pytest.mark.parametrize("spec", ["or_ail", "xnor_il", "or_and_xnor_nail_d"])
def test_channels_last_stays_channels_last(spec: str) -> None:
    module = boolit.activation(spec, dim=1)
    x = torch.randn(2, WIDTH, 4, 3).to(memory_format=torch.channels_last).requires_grad_()
    out = module(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert gradient.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dim", range(-5, 5, 2))
def test_any_dim_of_five(spec: str, dim: int) -> None:
    x = torch.randn(2, 3, 1, 2, WIDTH).movedim(-1, dim).contiguous()
    out = boolit.activation(spec, dim)(x)
    assert_agree(out.movedim(dim, -1), boolit.activation(spec, -1)(x.movedim(dim, -1).contiguous()))


# ------------------------------------------------------------------------------------------------ dim not given

READS_SEVERAL = ["or_ail", "xnor_il_k3", "or_and_ail_d", "max", "max_min_d", "signed_geomean", "glu", "relu+or_ail_d"]


@pytest.mark.parametrize("spec", READS_SEVERAL)
def test_images_need_a_dim(spec: str) -> None:
    """They paired neighbouring pixels."""
    module = boolit.activation(spec)
    for shape in ((2, 12, 12, 12), (2, 12, 12, 12, 12)):
        with pytest.raises(ValueError, match=r"dim=1 for \(N, C, H, W\), dim=-1 for channels last"):
            module(torch.randn(shape))
    for shape in ((12,), (3, 12), (2, 3, 12)):
        x = torch.randn(shape)
        assert torch.equal(module(x), boolit.activation(spec, -1)(x))


def test_pointwise_activations_and_functions_without_dim() -> None:
    x = torch.randn(2, 4, 4, 4)
    for spec in ("relu", "prelu", "gelu", torch.tanh):
        assert boolit.activation(spec)(x).shape == x.shape
    for call in (functional.or_ail, functional.signed_geomean, lambda x: functional.gate(x, "or_and_ail_d")):
        with pytest.raises(ValueError, match="dim=1 for"):
            call(x)
    custom = boolit.activation(lambda x: x[..., ::2] * x[..., 1::2])
    with pytest.raises(ValueError, match="dim=1 for"):
        custom(x)


# ------------------------------------------------------------------------------------------------ memory


def kept_bytes(spec: str, x: Tensor, dim: int = -1) -> int:
    """Return the bytes of all tensors that autograd holds, each storage once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = boolit.activation(spec, dim)(x.requires_grad_())
    out.sum().backward()
    return sum(storages.values())


@pytest.mark.parametrize("spec", [*GATES, "nand_ail", "xor_nail", "implies_nil", "nimplied_by_ail"])
def test_approximate_gates_keep_a_bit_per_input_element(spec: str) -> None:
    for shape, dim in (((64, 240), 1), ((7, 250), 1), ((1, 2000), 1), ((4, 16, 8, 8), 1)):
        x = torch.randn(shape)
        assert kept_bytes(spec, x, dim) <= (x.numel() / 8 + 16 if "ail" in spec else x.numel() * 4)


@pytest.mark.parametrize("k", [3, 4, 5, 8])
@pytest.mark.parametrize("gate", ["or_ail", "xnor_nail", "and_il"])
@pytest.mark.parametrize("pairing", ["", "_halves"])
def test_larger_groups_keep_two_bits(gate: str, k: int, pairing: str) -> None:
    x = torch.randn(16, k * 80)
    assert kept_bytes(f"{gate}_k{k}{pairing}", x) <= (x.numel() / 4 + 16 if "ail" in gate else x.numel() * 4)


@pytest.mark.parametrize("form", FORMS)
def test_ensembles_keep_a_bit_for_each_gate_that_reads_an_element(form: str) -> None:
    x = torch.randn(32, 480)  # 80 groups for each of three: whole bytes
    for strategy, bits in (("p", 1), ("d", 3)):
        most = bits * x.numel() / 8 + 16 if "ail" in form else x.numel() * 4
        assert kept_bytes(f"or_and_xnor_{form}_{strategy}", x) <= most


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_memory_in_other_types(dtype: torch.dtype) -> None:
    x = torch.randn(32, 480).to(dtype)
    assert kept_bytes("xnor_nail", x) <= x.numel() / 8 + 16
    assert kept_bytes("xnor_nil", x) <= x.numel() * x.element_size()
