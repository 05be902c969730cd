"""The baselines are the activations they are named after."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boolit
from boolit.nn import Gated, Pointwise, Reduction
from boolit.nn.gates import GATED, POINTWISE

OF_TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "prelu": lambda x: torch.where(x > 0, x, 0.25 * x),
    "softplus": F.softplus,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "hardtanh": F.hardtanh,
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "hardsigmoid": F.hardsigmoid,
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


def test_every_pointwise_activation_of_torch_is_there() -> None:
    """torch 1.10 has these, besides softmax and attention, which read several channels."""
    assert set(OF_TORCH) | {"rrelu"} == set(POINTWISE)


def test_threshold_has_its_numbers_in_the_spec() -> None:
    x = torch.tensor([-2.0, 0.05, 3.0])
    module = boolit.activation("threshold_0.1_20")
    assert torch.equal(module(x), F.threshold(x, 0.1, 20))
    assert (module.spec, module.channels) == ("threshold_0.1_20", (1, 1))


def test_rrelu_draws_from_the_generator_of_a_network() -> None:
    x = torch.randn(6, 4)
    torch.testing.assert_close(boolit.activation("rrelu").eval()(x), F.rrelu(x))
    state = torch.get_rng_state()
    nets = [boolit.nn.MLP(4, [8], 1, "rrelu", generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    first, same, other = (net(x) for net in nets)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    slopes = nets[0][1](torch.full((1000,), -1.0)).neg()
    assert 1 / 8 <= slopes.min() < 0.14 < 0.32 < slopes.max() <= 1 / 3


def test_a_misspelt_normalization_is_named() -> None:
    """It was a bare KeyError."""
    with pytest.raises(ValueError, match="unknown normalization 'bacth'; choose one of none, batch, layer"):
        boolit.nn.MLP(4, [8], 1, normalization="bacth")


@pytest.mark.parametrize("name", OF_TORCH)
def test_pointwise_activations_are_torchs(name: str) -> None:
    x = 3 * torch.randn(5, 7)
    module = boolit.activation(name, dim=1)
    torch.testing.assert_close(module(x), OF_TORCH[name](x))
    assert (module.channels, module.width_multiple, module.spec) == ((1, 1), 1, name)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_extrema(k: int) -> None:
    x = torch.randn(2, 12, 5)
    grouped = x.unflatten(1, (12 // k, k))
    assert torch.equal(Reduction("max", k, 1)(x), grouped.amax(2))
    assert torch.equal(Reduction("min", k, 1)(x), grouped.amin(2))
    assert torch.equal(Reduction("max", k, 1, "halves")(x), x.unflatten(1, (k, 12 // k)).amax(1))


def test_max_min_duplicate_is_groupsort_up_to_a_permutation() -> None:
    x = torch.randn(4, 10)
    high, low = boolit.activation("max_min_d")(x).chunk(2, -1)
    assert torch.equal(torch.stack([low, high], -1).flatten(1), x.unflatten(1, (5, 2)).sort(-1).values.flatten(1))


@pytest.mark.parametrize(
    ("name", "control"),
    [("glu", torch.sigmoid), ("swiglu", F.silu), ("geglu", F.gelu), ("bilinear", lambda x: x)],
)
def test_gated_activations(name: str, control: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(3, 8, 2)
    first, second = x.chunk(2, 1)
    torch.testing.assert_close(boolit.activation(name, dim=1)(x), first * control(second))
    assert set(GATED) == {"glu", "swiglu", "geglu", "bilinear"}


def test_glu_is_torchs() -> None:
    x = torch.randn(3, 8)
    torch.testing.assert_close(boolit.activation("glu")(x), nn.GLU()(x))


@pytest.mark.parametrize("name", ["max", "min", "max_min_d", "signed_geomean", *GATED])
def test_gradients(name: str) -> None:
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(boolit.activation(name), x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Pointwise("rellu"), "unknown activation 'rellu'; choose one of relu,"),
        (lambda: Gated("gluu"), "unknown activation 'gluu'; choose one of glu,"),
        (lambda: Reduction("mean"), "unknown reduction 'mean'; choose one of max, min, signed_geomean"),
        (lambda: Reduction("max", 1), "k=1 is not a group size: max reads at least 2 channels"),
        (lambda: Reduction("max", pairing="odd")(torch.zeros(4)), "unknown pairing 'odd'; choose one of adjacent, halves"),
        (lambda: Reduction("max")(torch.zeros(5)), "multiple of 2 channels, got 5; use 4 or 6"),
        (lambda: Gated("glu")(torch.zeros(1)), "multiple of 2 channels, got 1; use 2"),
    ],
)
def test_wrong_baselines_get_one_clear_sentence(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
