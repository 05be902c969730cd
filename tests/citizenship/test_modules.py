"""Modules in daily life: copied, pickled, saved, shared between threads, checkpointed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from gate_cases import SPECS, WIDTH
from torch import nn
from torch.utils.checkpoint import checkpoint

import boolit

EVERY_KIND = [*SPECS, "or_ail_k3_halves", "max_min_d", "signed_geomean", "swiglu", "prelu", "max+xnor_ail_d"]


@pytest.mark.parametrize("spec", EVERY_KIND)
def test_copies_are_the_same(spec: str) -> None:
    module, x = boolit.activation(spec, dim=1), torch.randn(2, WIDTH, 3)
    for other in (copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))):
        assert (other.spec, other.dim, other.channels, repr(other)) == (module.spec, 1, module.channels, repr(module))
        assert torch.equal(other(x), module(x))


@pytest.mark.parametrize("spec", SPECS)
def test_state_dicts_load_into_a_net_with_another_gate(spec: str, tmp_path: Path) -> None:
    act = boolit.activation(spec)
    net = nn.Sequential(nn.Linear(4, WIDTH), act, nn.Linear(act.out_features(WIDTH), 1))
    torch.save(net.state_dict(), tmp_path / "net.pt")
    state = torch.load(tmp_path / "net.pt", weights_only=True)
    assert list(state) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    other = nn.Sequential(nn.Linear(4, WIDTH), boolit.activation(spec), nn.Linear(act.out_features(WIDTH), 1))
    other.load_state_dict(state, strict=True)
    x = torch.randn(3, 4)
    assert torch.equal(other(x), net(x))


@pytest.mark.parametrize("spec", SPECS)
def test_activation_checkpointing(spec: str) -> None:
    module, x = boolit.activation(spec), torch.randn(6, WIDTH, requires_grad=True)
    kept = torch.autograd.grad(module(x).square().sum(), x)[0]
    again = torch.autograd.grad(checkpoint(module, x, use_reentrant=False).square().sum(), x)[0]
    assert torch.equal(kept, again)
