"""A run's key is a fact about its configuration, and about nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from boolit.lab.runs import Metric, Record, Run, RunConfig

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.text().filter(lambda name: name not in RunConfig.model_fields)
CONFIGS = st.dictionaries(UNKNOWN, PLAIN, max_size=4)


@given(CONFIGS)
def test_key_is_the_hash_of_the_sorted_json(config):
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert Run.from_dict(config).key == hashlib.sha256(text.encode("utf-8", "strict")).hexdigest()[:16]


@given(CONFIGS)
def test_order_of_writing_and_a_round_trip_do_not_change_the_key(config):
    turned = dict(reversed(config.items()))
    assert Run.from_dict(turned) == Run.from_dict(config) == Run.from_dict(json.loads(json.dumps(config)))
    assert len({Run.from_dict(turned), Run.from_dict(config)}) == 1


@given(CONFIGS, st.integers())
def test_another_seed_is_another_run(config, seed):
    assert Run.from_dict(config | {"seed": seed}) != Run.from_dict(config | {"seed": seed + 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_a_value_json_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match="plain, finite JSON values"):
        _ = Run.from_dict({"lr": value}).key


def test_a_record_has_one_of_two_states_and_a_possible_time():
    with pytest.raises(ValueError, match="finished, diverged, not 'running'"):
        Record("k", RunConfig(), "running", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0"):
        Record("k", RunConfig(), "finished", {}, seconds=-1.0)


METRIC = {"name": "auc", "split": "valid", "goal": "max", "solved": 0.5}
LABELLED = {"study": "mine", "profile": None, "metric": METRIC, "search": "final", "budget": 7}


@given(CONFIGS, st.sampled_from(RunConfig.LABELS))
def test_who_asks_and_how_it_is_compared_is_no_part_of_the_key(config, label):
    assert Run.from_dict(config | {label: LABELLED[label]}) == Run.from_dict(config)


@given(CONFIGS)
def test_entries_come_back_as_they_were_written_known_or_not(config):
    entries = LABELLED | {"seed": 3, "width": [4, 2], "data": {"name": "xor"}} | config
    assert RunConfig.from_dict(entries).to_dict() == entries
    assert RunConfig.from_dict(config).to_dict() == config


def test_a_copy_has_its_own_entries_and_merges_the_training_options():
    config = RunConfig.from_dict({"seed": 1, "training": {"epochs": 2, "batch": 8}, "later": 5})
    changed = config.replace(seed=2, training={"epochs": 9})
    assert changed.to_dict() == {"seed": 2, "training": {"epochs": 9, "batch": 8}, "later": 5}
    assert (config.seed, config.training, changed.key != config.key) == (1, {"epochs": 2, "batch": 8}, True)


@pytest.mark.parametrize("wrong", [{"seed": "1"}, {"width": 4}, {"metric": {"name": "auc", "goal": "up"}}, {"data": []}])
def test_an_entry_of_another_type_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RunConfig.from_dict(wrong)


@pytest.mark.parametrize(("name", "goal", "better", "worse"), [("accuracy", "max", 0.9, 0.8), ("rmse", "min", 0.8, 0.9)])
def test_a_metric_knows_what_is_better_and_what_solves_the_task(name, goal, better, worse):
    metric = Metric(name=name, split="valid", solved=0.85)
    assert (metric.key, metric.goal, metric.percent) == (f"valid_{name}", goal, goal == "max")
    assert metric.merit(better) > metric.merit(worse) > metric.merit(float("nan"))
    assert [metric.solves(value) for value in (better, worse, 0.85, float("nan"))] == [True, False, True, False]
    assert not Metric(name=name).solves(better)


def test_data_is_known_by_its_digest_wherever_it_lies():
    def run(data: dict[str, Any]) -> Run:
        return Run.from_dict({"data": data})

    tables = [{"name": "table", "path": path, "digest": "5f", "target": "y"} for path in ("a.csv", "/home/me/a.csv")]
    assert run(tables[0]) == run(tables[1]) != run(tables[0] | {"digest": "60"})
    held_out = [{"name": "holdout", "of": table} for table in tables]
    assert run(held_out[0]) == run(held_out[1]) != run(tables[0])
    assert run({"name": "mine", "path": "a"}) != run({"name": "mine", "path": "b"})


class Inner(BaseModel):
    name: str = "inner"
    size: int = 3


class Outer(BaseModel):
    name: str = "outer"
    of: Inner
    rate: float = 0.5
    later: list[int] = []


def test_options_at_their_defaults_are_not_named():
    assert RunConfig.options(Outer(of=Inner())) == {"name": "outer", "of": {"name": "inner"}}
    assert RunConfig.options(Outer(of=Inner(size=4), rate=0.5, later=[1])) == {
        "name": "outer",
        "of": {"name": "inner", "size": 4},
        "later": [1],
    }
