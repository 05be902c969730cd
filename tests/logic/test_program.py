"""Programs: their text, their shares, and what they refuse."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boolit
from boolit.logic import FORMS, OPERATIONS, PAIRINGS, Program

_GATES = st.tuples(st.sampled_from([name for name, op in OPERATIONS.items() if op.any_k]), st.sampled_from(FORMS))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    members = tuple(draw(st.lists(_GATES, min_size=1, max_size=5)))
    strategy = draw(st.sampled_from(["d", "p"]))
    return Program(
        members, strategy, draw(st.integers(2, 70)), draw(st.sampled_from(PAIRINGS)), strategy == "p" and draw(st.booleans())
    )


@given(programs())
def test_text_round_trip(program: Program) -> None:
    assert Program.parse(str(program)) == program


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("form", FORMS)
def test_every_gate_has_a_text(name: str, form: str) -> None:
    program = Program(((name, form),))
    assert Program.parse(str(program)) == program


@given(programs(), st.integers(0, 40))
def test_a_partition_shares_out_every_group_once(program: Program, multiple: int) -> None:
    channels = program.divisor * multiple
    groups = program.groups(channels)
    assert groups * program.k == channels
    shares = program.shares(groups)
    if program.strategy == "d":
        assert shares == ((0, groups),) * len(program.members)
    else:
        assert [group for start, size in shares for group in range(start, start + size)] == list(range(groups))
        sizes = [size for _, size in shares]
        assert max(sizes) - min(sizes) <= (1 if program.uneven else 0)
        assert sizes == sorted(sizes, reverse=True)
    assert program.out_channels(channels) == sum(size for _, size in shares)


@given(programs(), st.integers(1, 500))
def test_channels_that_do_not_divide_are_refused(program: Program, channels: int) -> None:
    if channels % program.divisor == 0:
        return
    with pytest.raises(ValueError, match=rf"multiple of {program.divisor} channels, got {channels}; use ") as caught:
        program.groups(channels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": ()}, "needs at least one gate, got none"),
        ({"members": (("nxor", "il"),)}, "unknown operation 'nxor'; choose one of and, or, xnor,"),
        ({"members": (("or", "ial"),)}, "unknown form 'ial'; choose one of il, ail, nil, nail"),
        ({"strategy": "q"}, "unknown strategy 'q'; choose one of d, p"),
        ({"pairing": "thirds"}, "unknown pairing 'thirds'; choose one of adjacent, halves"),
        ({"k": 1}, "k=1 is not a group size: a gate reads at least 2 channels"),
        ({"k": -3}, "k=-3 is not a group size"),
        ({"members": (("implies", "il"),), "k": 3}, "'implies' is an operation of exactly 2 logits.*use k=2"),
    ],
)
def test_wrong_programs_are_refused_in_one_line(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Program(**({"members": (("or", "il"),)} | arguments))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


ELSEWHERE = """
import base64, pickle, sys
import boolit
from boolit.logic import Program
program, gate = pickle.loads(base64.b64decode(sys.argv[1]))
same = Program(program.members, program.strategy, program.k, program.pairing, program.uneven)
assert program == same and hash(program) == hash(same) and hash(gate.program) == hash(boolit.activation(gate.spec).program)
assert {same: "found"}[program] == "found"
"""


def test_a_program_is_found_in_a_process_where_strings_hash_differently() -> None:
    program = Program((("or", "ail"), ("xnor", "il")), "p", 3, "halves", True)
    assert copy.deepcopy(program) == program
    pickled = base64.b64encode(pickle.dumps((program, boolit.activation("xnor_nil_k3")))).decode()
    another = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # than this process's, which is random if it is not set
    environment = {**os.environ, "PYTHONHASHSEED": another}
    subprocess.run([sys.executable, "-c", ELSEWHERE, pickled], env=environment, check=True, timeout=120)
