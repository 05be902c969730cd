"""Runs as columns are the records they were made from, and what is computed of columns is what plain Python finds."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.results import rows as rows_module
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.scores import metric_of, scores, size_of, summarise
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Record, Run

ENTRIES = {
    "study": st.sampled_from(["", "mine", 'with "seed":3, {braces}', "}"]),
    "profile": st.sampled_from([None, "quick"]),
    "activation": st.sampled_from(["relu", "xnor_ail"]),
    "data": st.sampled_from(
        [{"name": "parity"}, {"name": "table", "seed": 7}, {"name": "}", "of": {"seed": 1}}, {"a": "{", "seed": 5}]
    ),
    "training": st.sampled_from([{"learning_rate": 0.1}, {"learning_rate": 0.1, "seed": 2}]),
    "parameters": st.integers(0, 40),
    "budget": st.sampled_from([None, 36]),
    "depth": st.integers(0, 2),
    "width": st.lists(st.integers(1, 9), max_size=2),
    "split": st.sampled_from([None, 0, 3]),
    "trial": st.booleans(),
    "search": st.sampled_from([None, "final"]),
    "seed": st.one_of(st.integers(0, 5), st.integers(-(2**70), 2**70)),
    "later": st.sampled_from([1, "x", {"seed": 4}, [1.5]]),  # of a newer boolit
}
VALUES = st.one_of(st.floats(), st.sampled_from([0.1, 1.0, -0.0]))
RECORDS = st.lists(
    st.tuples(
        st.fixed_dictionaries({}, optional=ENTRIES),
        st.sampled_from(["finished", "diverged"]),
        st.dictionaries(st.sampled_from(["test_accuracy", "test_loss", "auc"]), VALUES),
        st.dictionaries(st.sampled_from(["test_accuracy", "train_loss"]), st.lists(VALUES, max_size=4)),
        st.sampled_from([{}, {"device": "cpu", "threads": 1}, {"device": "cuda"}]),
        st.floats(0, 1e6),
    ),
    max_size=12,
    unique_by=lambda drawn: Run.from_dict(drawn[0]).key,
)


def make(drawn: list[tuple[Any, ...]]) -> list[Record]:
    return [Record((run := Run.from_dict(entries)).key, run.config, *rest) for entries, *rest in drawn]


def plain(record: Record) -> str:
    """Everything a record holds; text, as NaN is not equal to itself."""
    entries = sorted(record.config.to_dict().items())
    curves = {name: record.history[name] for name in sorted(record.history)}
    metrics = sorted((name, float(value)) for name, value in record.metrics.items())
    return repr((record.key, entries, record.state, metrics, curves, sorted(record.environment.items()), float(record.seconds)))


@settings(max_examples=300, deadline=None)
@given(RECORDS)
def test_a_table_is_the_records_it_was_made_from(drawn: list[tuple[Any, ...]]) -> None:
    records = make(drawn)
    table = RunTable.of(records)
    assert list(map(plain, table)) == list(map(plain, records))
    assert [type(record.config.seed) for record in table] == [int] * len(records)
    assert [record.config.key for record in table] == [record.key for record in records]
    assert list(map(plain, table[::-2])) == list(map(plain, records[::-2]))
    joined = RunTable.join([table[:3], table[3:]])
    assert list(map(plain, joined)) == list(map(plain, records))
    assert list(map(plain, RunTable.join([table, table]).without_repeats())) == list(map(plain, records))


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_a_store_s_table_is_its_rows_read_one_by_one(drawn: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder, Store(Path(folder)) as store:
        store.record(make(drawn))
        one_by_one = [rows_module.parse_record(*row) for row in rows_module.select_rows(store._connection, history=True)]

        def order(record: Record) -> tuple[Any, ...]:
            config = record.config
            budget = -1 if config.budget is None else config.budget
            names = (config.study, str(config.profile), config.activation)
            return (*names, config.depth, budget, config.parameters, config.seed, record.key)

        expected = [plain(record) for record in sorted(one_by_one, key=order)]
        assert [plain(record) for record in store.table()] == expected
        assert [plain(record) for record in store.records()] == expected
        assert [record.history for record in store.records(history=False)] == [{}] * len(drawn)
        for where in (
            {"activation": "relu"},
            {"seed": 1},
            {"seed": 0, "depth": 1},
            {"seed": "1"},
            {"data": {"name": "parity"}},
        ):
            wanted = [r for r in store.records() if all(r.config.to_dict().get(name, where) == v for name, v in where.items())]
            assert [r.key for r in store.table(where)] == [r.key for r in wanted]


@settings(max_examples=100, deadline=None)
@given(RECORDS, st.randoms())
def test_groups_are_those_of_plain_python(drawn: list[tuple[Any, ...]], shuffled: random.Random) -> None:
    records = make(drawn)
    shuffled.shuffle(records)
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for record in records:
        groups[record.config.activation, record.config.depth].append(record.key)
    found = RunTable.of(records).group_by(lambda config: (config.activation, config.depth))
    assert [(label, [r.key for r in own]) for label, own in found.items()] == list(groups.items())
    first = RunTable.of(records).first_of_each(lambda config: config.activation, 2)
    for spec in ("relu", "xnor_ail", ""):
        seeds = sorted(r.config.seed for r in records if r.config.activation == spec)
        assert sorted(r.config.seed for r in first if r.config.activation == spec) == seeds[:2]
    keys = [record.key for record in records]
    assert [r.key for r in first] == [key for key in keys if key in {r.key for r in first}]


def study(seeds: int, drawn: random.Random) -> list[Record]:
    """A study of two activations and two sizes, some of whose runs diverged or have no finite score."""
    found = []
    for number in range(4 * seeds):
        spec, size, seed = ("relu", "xnor_ail")[number % 2], (20, 36)[number // 2 % 2], number // 4
        metric = {"name": "accuracy", "split": "test"}
        run = Run.from_dict(
            {"activation": spec, "parameters": size, "width": [size], "depth": 1, "seed": seed, "metric": metric}
        )
        value = drawn.choice([drawn.random(), drawn.random(), math.nan, math.inf])
        state = drawn.choice(["finished", "finished", "diverged"])
        found.append(Record(run.key, run.config, state, {"test_accuracy": value}, seconds=drawn.random()))
    return found


def test_scores_are_those_of_plain_python() -> None:
    records = study(25, random.Random(0))
    random.Random(1).shuffle(records)
    expected = []
    for spec, size in sorted({(r.config.activation, size_of(r.config)) for r in records}):
        own = sorted(
            (r for r in records if (r.config.activation, r.config.parameters) == (spec, size)), key=lambda r: r.config.seed
        )
        kept = [r.metrics["test_accuracy"] for r in own if r.state == "finished" and math.isfinite(r.metrics["test_accuracy"])]
        expected.append((spec, size, tuple(kept), len(own) - len(kept)))
    found = scores(records, "test_accuracy")
    assert [(s.activation, s.size, s.values, s.diverged) for s in found] == expected
    accuracy = Metric(name="accuracy")
    assert metric_of(records) == accuracy
    summary = summarise(found[0], accuracy)
    assert (summary.mean, summary.sd) == (statistics.fmean(found[0].values), statistics.stdev(found[0].values))


def test_a_finished_run_without_the_metric_is_named() -> None:
    run = Run.from_dict({"seed": 1})
    finished = Record(run.key, run.config, "finished", {"test_loss": math.nan})
    with pytest.raises(UserError, match=rf"run {run.key} has no metric 'auc'; it has test_loss"):
        scores([finished], "auc")
    diverged = Record(run.key, run.config, "diverged", {})
    assert scores([diverged], "auc")[0].diverged == 1
    assert scores([finished], "test_loss")[0].diverged == 1  # NaN is a value, and no finite one


def test_a_configuration_is_parsed_once_for_all_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path) as store:
        store.record(study(20, random.Random(0)))
        parsed: list[object] = []
        read = rows_module.RunConfig.from_dict
        monkeypatch.setattr(
            "boolit.lab.results.run_table.RunConfig.from_dict", lambda entries: parsed.append(entries) or read(entries)
        )
        table = store.table()
    assert len(parsed) == len(table.configs) == 4
    assert len(table) == 80
    assert table.columns["seed"].dtype == np.int64
