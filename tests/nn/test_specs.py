"""Specs: what the parser takes, what it makes of it, and that it fails kindly on anything else."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import boolit
from boolit.logic import FORMS, OPERATIONS
from boolit.nn import Activation, Custom, Ensemble, Gate, activation, known_specs, register
from boolit.nn.gates import GATED, POINTWISE

_ANY_K = [name for name, operation in OPERATIONS.items() if operation.flips in ("none", "all")]
_WORDS = [
    *OPERATIONS,
    *FORMS,
    *POINTWISE,
    *GATED,
    "max",
    "min",
    "signed",
    "geomean",
    "d",
    "p",
    "pu",
    "k",
    "k3",
    "halves",
    "+",
    "0",
]


@st.composite
def endings(draw: st.DrawFn, most: int = 9) -> str:
    k = draw(st.integers(2, most))
    return (f"_k{k}" if k > 2 else "") + draw(st.sampled_from(["", "_halves"]))


@st.composite
def gates(draw: st.DrawFn) -> str:
    return f"{draw(st.sampled_from(_ANY_K))}_{draw(st.sampled_from(FORMS))}{draw(endings())}"


def singles() -> st.SearchStrategy[str]:
    pairs = st.sampled_from([f"{name}_{form}" for name in OPERATIONS for form in FORMS])
    extrema = st.builds(lambda name, ending: name + ending, st.sampled_from(["max", "min"]), endings())
    return st.one_of(gates(), pairs, extrema, st.sampled_from([*POINTWISE, *GATED, "signed_geomean", "signed_geomean_halves"]))


@st.composite
def ensembles(draw: st.DrawFn) -> str:
    names = "_".join(draw(st.lists(st.sampled_from(_ANY_K), min_size=1, max_size=4)))
    return f"{names}_{draw(st.sampled_from(FORMS))}_{draw(st.sampled_from(['d', 'p', 'pu', 'pl']))}{draw(endings())}"


def mixtures() -> st.SearchStrategy[str]:
    return st.lists(singles(), min_size=2, max_size=4).map(lambda members: "+".join(members) + "_d")


def valid_specs() -> st.SearchStrategy[str]:
    return st.one_of(
        singles(),
        ensembles(),
        mixtures(),
        st.sampled_from(["max_min_d", "max_min_p", "max_min_d_k3", "or_max_ail_d", "threshold_0.1_20", "threshold_-1_0"]),
    )


# ------------------------------------------------------------------------------------------------ valid ones


@given(valid_specs())
def test_round_trip(text: str) -> None:
    module = activation(text)
    again = activation(module.spec)
    assert again.spec == module.spec
    assert repr(again) == repr(module)


@settings(max_examples=60)
@given(valid_specs())
def test_map_and_shape_agree_with_running_it(text: str) -> None:
    module = activation(text, dim=1)
    channels = module.width_multiple * 2
    out = module(torch.randn(3, channels, 2))
    assert out.shape == (3, module.out_features(channels), 2)
    assert (
        module.out_features(channels) == channels * module.feature_factor == channels * module.channels[1] // module.channels[0]
    )
    assert module.width_multiple % module.channels[0] == 0


@pytest.mark.parametrize("text", known_specs())
def test_known_specs_are_their_own_names(text: str) -> None:
    module = activation(text)
    assert module.spec == text
    assert re.fullmatch(r"[a-z0-9_+]+", text), "safe in a shell, a file name and TOML"
    assert module(torch.randn(2, 12)).shape == (2, module.out_features(12))


def test_the_order_of_the_spec_is_the_order_of_the_blocks() -> None:
    x = torch.randn(3, 8)
    blocks = [boolit.functional.gate(x, f"{op}_ail") for op in ("xnor", "implied_by", "and")]
    assert torch.equal(activation("xnor_implied_by_and_ail_d")(x), torch.cat(blocks, -1))


def test_endings_reach_the_gates() -> None:
    module = activation("or_xnor_ail_d_k4_halves", dim=1)
    assert isinstance(module, Ensemble)
    assert [(part.spec, part.dim) for part in module.parts] == [("or_ail_k4_halves", 1), ("xnor_ail_k4_halves", 1)]


def test_an_activation_is_taken_as_it_is_or_along_another_dim() -> None:
    module = Gate("or", dim=1)
    assert activation(module) is activation(module, 1) is module
    other = activation(activation("or_max_ail_d"), dim=1)
    assert [part.dim for part in other.modules() if isinstance(part, Activation)] == [1, 1, 1]
    x = torch.randn(2, 4, 3, 3)
    assert torch.equal(activation(Gate("or"), dim=1)(x), module(x))  # it kept dim=-1


def test_a_spec_comes_back_as_it_was() -> None:
    for text in ("or_max_ail_d", "max_or_ail_p", "or_ail+xnor_il_d", "or_max_ail_d_k3_halves"):
        assert activation(text).spec == text


# ------------------------------------------------------------------------------------------------ anything else


def fails_kindly(text: str) -> None:
    try:
        module = activation(text)
    except (ValueError, TypeError) as error:
        message = str(error)
    else:
        assert activation(module.spec).spec == module.spec
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789_+.-")
        return
    assert "\n" not in message
    assert len(message) > 10


@given(st.text(max_size=40))
def test_random_text_fails_kindly(text: str) -> None:
    fails_kindly(text)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(_WORDS), max_size=8), st.sampled_from(["_", "+", "", "__", "_+"]))
def test_random_words_fail_kindly(words: list[str], joint: str) -> None:
    fails_kindly(joint.join(words))


@given(valid_specs(), st.data())
def test_damaged_specs_fail_kindly(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    fails_kindly(text[:at] + data.draw(st.sampled_from(["", "_", "+", "x", "k", "\n", "9" * 30])) + text[at + 1 :])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("or_aill", r"unknown activation 'or_aill'; did you mean or_ail"),
        ("rellu", r"unknown activation 'rellu'; did you mean relu"),
        ("", r"unknown activation ''; `boolit list` shows all"),
        ("or_ail\n", r"unknown activation 'or_ail\\n'"),
        ("or_ail__d", r"unknown activation 'or_ail__d'"),
        ("or", r"unknown activation 'or'"),
        ("or_and_d", r"unknown activation 'or_and_d'"),
        ("max_min_ail_d", r"unknown activation 'max_min_ail_d'"),
        ("relu_k3", r"unknown activation 'relu_k3'"),
        ("signed_geomean_k3", r"signed_geomean reads 2 channels, so k=3 has no meaning for it; use k=2"),
        ("or_ail_k1", r"k=1 is not a group size"),
        ("max_k1", r"k=1 is not a group size"),
        ("threshold", r"unknown activation 'threshold'"),
        ("implies_il_k3", r"'implies' is an operation of exactly 2 logits"),
        ("max_min_pu", r"an uneven partition takes gates of one group size and pairing only"),
        ("relu+tanhh_d", r"unknown activation 'tanhh'; did you mean tanh"),
    ],
)
def test_unknown_specs_are_named_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        activation(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [None, 3, ["or_ail"], int])
def test_other_objects_are_refused(wrong: object) -> None:
    with pytest.raises(TypeError) as caught:
        activation(wrong)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------ one's own


def test_registered_names_work_wherever_a_spec_does() -> None:
    register("square", lambda dim: Custom(torch.square, dim, name="square"))
    x = torch.randn(2, 4)
    assert torch.equal(activation("square")(x), x**2)
    assert "square" in known_specs()
    mixture = activation("square+or_ail_d", dim=1)
    assert (mixture.spec, mixture.channels) == ("square+or_ail_d", (2, 3))
    assert torch.equal(mixture(x), torch.cat([x**2, boolit.functional.or_ail(x)], 1))
    register("square", lambda dim: Custom(torch.abs, dim, name="square"))
    assert torch.equal(activation("square")(x), x.abs())


@pytest.mark.parametrize(
    ("name", "message"), [("Square", "lower-case"), ("a b", "lower-case"), ("9x", "starting with"), ("or_ail", "already")]
)
def test_registering_a_bad_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register(name, lambda dim: Custom(torch.abs, dim))


@pytest.mark.parametrize("spec", ["or_ail_k3", "xor_or_il_p", "or_ail_k1", "max+relu_d"])
def test_registering_a_name_the_parser_knows_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match=r"already an activation|cannot be a spec"):
        register(spec, lambda dim: Custom(torch.abs, dim))


@pytest.mark.parametrize(
    ("given_one", "dim", "channel_map", "spec"),
    [
        (nn.Tanh, -1, (1, 1), "Tanh"),
        (nn.GLU, -1, (2, 1), "GLU"),
        (nn.PReLU, 1, (1, 1), "PReLU"),
        (torch.relu, 1, (1, 1), "relu"),
        (lambda x: x[..., ::3], -1, (3, 1), "<lambda>"),
        (lambda x: torch.cat([x, -x], -1).relu(), 1, (1, 2), "<lambda>"),
        (nn.Hardtanh(-2.0, 2.0), -1, (1, 1), "Hardtanh"),
    ],
)
def test_classes_and_callables(
    given_one: Callable[..., torch.Tensor], dim: int, channel_map: tuple[int, int], spec: str
) -> None:
    module = activation(given_one, dim)
    assert isinstance(module, Activation)
    assert (module.channels, module.spec, module.dim) == (channel_map, spec, dim)
    x = torch.randn(2, 12, 2, 2) if dim == 1 else torch.randn(2, 12)
    assert module(x).shape[dim] == module.out_features(12)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("pairs", [lambda x: x[..., 0::2] * x[..., 1::2], nn.GLU()], ids=["function", "module"])
def test_a_callable_sees_the_channels_last_wherever_they_are(pairs: Callable[[torch.Tensor], torch.Tensor], dim: int) -> None:
    module = Custom(pairs, dim, name="pairs")
    assert module.channels == (2, 1)
    x = torch.randn(4, 6, 8)
    assert torch.equal(module(x), pairs(x.movedim(dim, -1)).movedim(-1, dim))
    assert module(x).shape[dim] == module.out_features(x.shape[dim])


def test_a_factory_that_makes_something_else_is_named() -> None:
    register("own_tanh", lambda dim: nn.Tanh())  # type: ignore[arg-type,return-value]  # noqa: ARG005
    with pytest.raises(ValueError, match=r"the factory of 'own_tanh' made a Tanh; have it return Custom"):
        activation("own_tanh")


def test_a_modules_parameters_are_kept_and_its_state_is_not_changed() -> None:
    assert len(list(activation(nn.PReLU).parameters())) == 1
    norm = nn.BatchNorm1d(3)
    activation(norm)
    assert norm.training
    assert norm.num_batches_tracked == 0


def raises_two_lines(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(f"no\n{x.shape}")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.sum(),
        lambda x: x[99],
        nn.Linear(3, 3),
        lambda x: str(x.shape),
        raises_two_lines,
        lambda x: torch.cat([x, x], 1),  # along a dimension that is not the channels'
        lambda x: x.flatten(),
    ],
)
def test_callables_that_are_no_activation_are_refused(wrong: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(TypeError) as caught:
        activation(wrong)
    assert "\n" not in str(caught.value)
