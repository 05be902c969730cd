"""What a gate keeps for its backward: one bit per input element if approximate, at most the input if exact."""

from __future__ import annotations

import pytest
import torch
from gate_cases import FORMS, GATES
from torch import Tensor

import boolit

DERIVED = [f"{op}_{form}" for op in ("nand", "xor", "implies", "nimplied_by") for form in FORMS]


def kept_bytes(spec: str, x: Tensor, dim: int = -1) -> int:
    """The bytes of all tensors autograd holds, each storage once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = boolit.activation(spec, dim)(x.requires_grad_())
    out.sum().backward()
    return sum(storages.values())


@pytest.mark.parametrize("shape", [(64, 240), (7, 250), (1, 2000)])
@pytest.mark.parametrize("spec", [*GATES, *DERIVED])
def test_gates_on_the_last_dimension(spec: str, shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    most = x.numel() / 8 + 16 if "ail" in spec else x.numel() * 4
    assert kept_bytes(spec, x) <= most


@pytest.mark.parametrize("k", [3, 4, 5, 8])
@pytest.mark.parametrize("gate", ["or_ail", "xnor_nail", "and_il"])
@pytest.mark.parametrize("pairing", ["", "_halves"])
def test_larger_groups(gate: str, k: int, pairing: str) -> None:
    x = torch.randn(16, k * 80)
    most = x.numel() / 8 + 16 if "ail" in gate else x.numel() * 4
    assert kept_bytes(f"{gate}_k{k}{pairing}", x) <= most


@pytest.mark.parametrize("spec", GATES)
@pytest.mark.parametrize("halves", ["", "_halves"])
def test_gates_on_the_channels_of_images(spec: str, halves: str) -> None:
    x = torch.randn(4, 16, 8, 8)
    most = x.numel() / 8 + 16 if "ail" in spec else x.numel() * 4
    assert kept_bytes(spec + halves, x, 1) <= most


@pytest.mark.parametrize("form", ["ail", "nail"])
def test_ensembles_keep_a_bit_for_each_gate_that_reads_an_element(form: str) -> None:
    x = torch.randn(32, 480)  # 80 groups for each of three: whole bytes
    bit = x.numel() / 8
    assert kept_bytes(f"or_and_xnor_{form}_p", x) <= bit + 16
    assert kept_bytes(f"or_and_{form}_d", x) <= 2 * bit + 16
    assert kept_bytes(f"or_and_xnor_{form}_d", x) <= 3 * bit + 16


@pytest.mark.parametrize("form", ["il", "nil"])
@pytest.mark.parametrize("strategy", ["d", "p"])
def test_exact_ensembles_keep_the_input_alone(form: str, strategy: str) -> None:
    x = torch.randn(32, 480)
    assert kept_bytes(f"or_and_xnor_{form}_{strategy}", x) <= x.numel() * 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types(dtype: torch.dtype) -> None:
    x = torch.randn(32, 480).to(dtype)
    assert kept_bytes("xnor_nail", x) <= x.numel() / 8 + 16
    assert kept_bytes("xnor_nil", x) <= x.numel() * x.element_size()


def test_nothing_is_kept_without_a_gradient() -> None:
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        for spec in GATES:
            boolit.activation(spec)(torch.randn(4, 8))
    assert not packed
