"""A run's key is a fact about its configuration, and about nothing else."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from boolit.lab.runs import LABELS, Record, Run, options

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.text(), PLAIN, max_size=4)


@given(CONFIGS)
def test_key_is_the_hash_of_the_sorted_json(config):
    config = {name: value for name, value in config.items() if name not in (*LABELS, "data")}
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


@given(CONFIGS, st.sampled_from(LABELS), PLAIN)
def test_who_asks_and_how_it_is_judged_is_no_part_of_the_key(config, label, value):
    assert Run(config | {label: value}) == Run({name: own for name, own in config.items() if name != label})


def test_data_is_known_by_its_digest_wherever_it_lies():
    tables = [{"name": "table", "path": path, "digest": "5f", "target": "y"} for path in ("a.csv", "/home/me/a.csv")]
    assert Run({"data": tables[0]}) == Run({"data": tables[1]}) != Run({"data": tables[0] | {"digest": "60"}})
    held_out = [{"name": "holdout", "of": table} for table in tables]
    assert Run({"data": held_out[0]}) == Run({"data": held_out[1]}) != Run({"data": tables[0]})
    assert Run({"data": {"name": "mine", "path": "a"}}) != Run({"data": {"name": "mine", "path": "b"}})


class Inner(BaseModel):
    name: str = "inner"
    size: int = 3


class Outer(BaseModel):
    name: str = "outer"
    of: Inner
    rate: float = 0.5
    later: list[int] = []


def test_options_at_their_defaults_are_not_named():
    assert options(Outer(of=Inner())) == {"name": "outer", "of": {"name": "inner"}}
    assert options(Outer(of=Inner(size=4), rate=0.5, later=[1])) == {
        "name": "outer",
        "of": {"name": "inner", "size": 4},
        "later": [1],
    }
