"""Programs: their specs, their shares, and what they refuse."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boolit.logic import FORMS, OPERATIONS, PAIRINGS, Program

_GATES = st.tuples(
    st.sampled_from([name for name, op in OPERATIONS.items() if op.flips in ("none", "all")]), st.sampled_from(FORMS)
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    members = tuple(draw(st.lists(_GATES, min_size=1, max_size=5)))
    strategy = draw(st.sampled_from(["d", "p", "pu", "pl"]))
    return Program(members, strategy, draw(st.integers(2, 70)), draw(st.sampled_from(PAIRINGS)))


@given(programs())
def test_specs_and_copies_round_trip(program: Program) -> None:
    assert Program.parse(program.spec) == program
    assert copy.deepcopy(program) == program == pickle.loads(pickle.dumps(program))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("form", FORMS)
def test_every_gate_has_a_spec(name: str, form: str) -> None:
    program = Program(((name, form),))
    assert program.spec == f"{name}_{form}"
    assert Program.parse(program.spec) == program


@given(programs(), st.integers(0, 40))
def test_a_partition_gives_every_group_to_one_gate(program: Program, multiple: int) -> None:
    channels = program.width_multiple * multiple
    groups = program.groups(channels)
    shares = program.shares(groups)
    if program.strategy == "d":
        assert shares == ((0, groups),) * len(program.members)
    else:
        assert [group for start, size in shares for group in range(start, start + size)] == list(range(groups))
    assert program.out_channels(channels) == sum(size for _, size in shares)


@pytest.mark.parametrize(
    ("strategy", "groups", "sizes"),
    [
        ("p", 512 * 3, [512, 512, 512]),
        ("pu", 512, [171, 171, 170]),  # SRAN: the first members have one group more
        ("pu", 2, [1, 1, 0]),
        ("pl", 512, [170, 170, 172]),  # the authors' sweeps: the last member takes the rest
        ("pl", 2, [0, 0, 2]),
    ],
)
def test_shares_of_partitions(strategy: str, groups: int, sizes: list[int]) -> None:
    program = Program.parse(f"or_and_xnor_ail_{strategy}")
    assert [size for _, size in program.shares(groups)] == sizes


@given(programs(), st.integers(1, 500))
def test_channels_that_do_not_divide_are_refused(program: Program, channels: int) -> None:
    if channels % program.width_multiple:
        with pytest.raises(ValueError, match=rf"multiple of {program.width_multiple} channels, got {channels}; use "):
            program.groups(channels)


@pytest.mark.parametrize(
    "spec", ["", "or", "ail", "or_ail_ail", "or_and_ail", "relu", "or_ail+relu_d", "or_ail_k3+or_ail_d", "max"]
)
def test_specs_of_other_things_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="is not a gate or an ensemble of gates"):
        Program.parse(spec)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": ()}, "needs at least one gate, got none"),
        ({"members": (("nxor", "il"),)}, "unknown operation 'nxor'; choose one of and, or, xnor,"),
        ({"members": (("or", "ial"),)}, "unknown form 'ial'; choose one of il, ail, nil, nail"),
        ({"strategy": "q"}, "unknown strategy 'q'; choose one of d, p"),
        ({"pairing": "thirds"}, "unknown pairing 'thirds'; choose one of adjacent, halves"),
        ({"k": 1}, "k=1 is not a group size: a gate reads at least 2 channels"),
        ({"members": (("implies", "il"),), "k": 3}, "'implies' is an operation of exactly 2 logits.*use k=2"),
    ],
)
def test_wrong_programs_are_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Program(**({"members": (("or", "il"),)} | arguments))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
