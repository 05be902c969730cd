"""A run's key is a fact about its configuration, and about nothing else."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boolit.lab.runs import Record, Run

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.text(), PLAIN, max_size=4)


@given(CONFIGS)
def test_key_is_the_hash_of_the_sorted_json(config):
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert Run(config).key == hashlib.sha256(text.encode("utf-8", "strict")).hexdigest()[:16]


@given(CONFIGS)
def test_order_of_writing_and_a_round_trip_do_not_change_the_key(config):
    turned = dict(reversed(config.items()))
    assert Run(turned) == Run(config) == Run(json.loads(json.dumps(config)))
    assert len({Run(turned), Run(config)}) == 1


@given(CONFIGS, st.integers())
def test_another_seed_is_another_run(config, seed):
    assert Run(config | {"seed": seed}) != Run(config | {"seed": seed + 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_a_value_json_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match="plain, finite JSON values"):
        _ = Run({"lr": value}).key


def test_a_record_has_one_of_two_states_and_a_possible_time():
    with pytest.raises(ValueError, match="finished, diverged, not 'running'"):
        Record("k", {}, "running", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0"):
        Record("k", {}, "finished", {}, seconds=-1.0)
