"""Gate and Ensemble as modules: what they compute, what they tell about themselves, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from gate_cases import FORMS, GATES, SPECS, assert_agree
from torch import nn

import boolit
from boolit.functional import combine, gate
from boolit.logic.operations import format_spec
from boolit.nn import Activation, Ensemble, Gate, Gated, Pointwise, Reduction


def logits(channels: int, dim: int = -1) -> torch.Tensor:
    return torch.randn(3, 5, channels).movedim(-1, dim)


@pytest.mark.parametrize("spec", GATES)
@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize(("k", "pairing"), [(2, "adjacent"), (3, "halves")])
def test_gate_is_the_function(spec: str, dim: int, k: int, pairing: str) -> None:
    op, form = spec.split("_")
    x = logits(12, dim)
    assert torch.equal(Gate(op, form, k, dim, pairing)(x), gate(x, format_spec([(op, form)], None, k, pairing), dim))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
def test_partition_members_act_on_their_own_share(form: str, k: int, pairing: str) -> None:
    # an early version of the authors' code cut along the operands, so that the first gate did everything
    members = [Gate(op, form, k, 1, pairing) for op in ("and", "or", "xnor")]
    x = torch.randn(2, 6 * k, 7)
    chunks = Ensemble(members, "p", 1)(x).chunk(3, 1)
    for i, (member, chunk) in enumerate(zip(members, chunks, strict=True)):
        groups = torch.arange(2 * i, 2 * i + 2)
        channels = [groups * k + j if pairing == "adjacent" else groups + 6 * j for j in range(k)]
        own = combine(member.op, *(x.index_select(1, index) for index in channels), form=form)
        assert_agree(chunk, own)


def test_members_of_any_kind() -> None:
    members: list[Activation] = [Gate("or", "ail", 3), Reduction("max"), Gated("glu"), Pointwise("tanh")]
    x = logits(24)
    duplicate, partition = Ensemble(members, "d"), Ensemble(members, "p")
    assert duplicate.program is None
    assert torch.equal(duplicate(x), torch.cat([member(x) for member in members], -1))
    pieces = x.chunk(4, -1)
    assert torch.equal(partition(x), torch.cat([member(piece) for member, piece in zip(members, pieces, strict=True)], -1))
    for module in (duplicate, partition):
        assert module(x).shape[-1] == module.out_features(24)
    assert (duplicate.channels, partition.channels) == ((6, 2 + 3 + 3 + 6), (24, 14))
    assert partition.width_multiple == 24


@pytest.mark.parametrize(
    ("spec", "channel_map", "width_multiple"),
    [
        ("or_ail", (2, 1), 2),
        ("xnor_nil", (2, 1), 2),
        ("and_il_k5", (5, 1), 5),
        ("or_and_ail_d", (2, 2), 2),
        ("or_xnor_nail_d", (2, 2), 2),
        ("or_and_xnor_il_d", (2, 3), 2),
        ("or_xnor_ail_p", (2, 1), 4),
        ("or_and_xnor_ail_p", (2, 1), 6),
        ("or_and_xnor_ail_pu", (2, 1), 2),
        ("or_and_xnor_ail_d_k3", (3, 3), 3),
        ("max_min_d", (2, 2), 2),
        ("relu", (1, 1), 1),
        ("glu", (2, 1), 2),
    ],
)
def test_channels_and_width_multiples(spec: str, channel_map: tuple[int, int], width_multiple: int) -> None:
    module = boolit.activation(spec)
    assert (module.channels, module.width_multiple) == (channel_map, width_multiple)
    assert module.feature_factor == Fraction(channel_map[1], channel_map[0])


@pytest.mark.parametrize("spec", SPECS)
def test_out_features_is_what_comes_out(spec: str) -> None:
    module = boolit.activation(spec, dim=1)
    for multiple in range(1, 5):
        n = multiple * module.width_multiple
        assert module(torch.randn(2, n, 3)).shape == (2, module.out_features(n), 3)


def test_out_features_names_the_nearest_widths() -> None:
    with pytest.raises(ValueError, match="or_xnor_ail_p needs a multiple of 4 channels, got 10; use 8 or 12"):
        boolit.activation("or_xnor_ail_p").out_features(10)
    with pytest.raises(ValueError, match="got 3") as caught:
        boolit.activation("or_xnor_ail_p").out_features(3)
    assert "use 0" not in str(caught.value)


def test_modules_hold_no_parameters() -> None:
    for spec in SPECS:
        module = boolit.activation(spec)
        assert not module.state_dict(), spec
        assert not list(module.parameters()), spec
        assert not list(module.buffers()), spec


def test_the_example_of_a_network_trains() -> None:
    inputs = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    targets = torch.tensor([1.0, 0.0, 0.0, 1.0])
    net = nn.Sequential(nn.Linear(2, 8), boolit.activation("xnor_ail"), nn.Linear(4, 1), nn.Flatten(0))
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(150):
        loss = nn.functional.binary_cross_entropy_with_logits(net(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Ensemble([], "d"), ValueError, "an ensemble needs at least one member, got none"),
        (lambda: Ensemble([Gate("or")], "x"), ValueError, r"unknown strategy 'x'; choose one of d, p"),
        (
            lambda: Ensemble([Gate("or", dim=1), Gate("or", dim=2)], "d"),
            ValueError,
            r"members act along dims \[1, 2\]; give the ensemble its dim",
        ),
        (lambda: Ensemble([Gate("or"), Reduction("max")], "pu"), ValueError, "uneven partition takes gates of one"),
        (
            lambda: Ensemble([Gate("or", pairing="halves"), Reduction("max")], "p"),
            ValueError,
            "by halves takes gates",
        ),
        (lambda: Gate("ro"), ValueError, "unknown operation 'ro'; choose one of and, or"),
        (lambda: Gate("or", "li"), ValueError, "unknown form 'li'; choose one of il, ail"),
        (lambda: Gate("or", k=1), ValueError, "k=1 is not a group size"),
        (lambda: Gate("or", pairing="odd"), ValueError, "unknown pairing 'odd'; choose one of adjacent, halves"),
        (lambda: Gate("or")(torch.zeros(2, 3)), ValueError, "multiple of 2 channels, got 3; use 2 or 4"),
        (lambda: Gate("or", dim=1)(torch.zeros(4)), IndexError, r"dim=1 is out of range for a tensor of shape \(4,\)"),
        (lambda: Gate("or")(torch.zeros(4, dtype=torch.int32)), TypeError, "float16, got torch.int32; convert them"),
        (lambda: boolit.activation("max+glu_p")(torch.zeros(2, 6)), ValueError, r"multiple of 4 channels, got 6; use 4 or 8"),
    ],
)
def test_wrong_modules_get_one_clear_sentence(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
