"""Runs and cohorts: nothing is lost, only runs of one shape share a cohort, and keys depend on the run alone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.lab import paper
from boolit.lab.runs import Metric, RunConfig
from boolit.lab.studies import Cohort, cohorts, load_study, plan
from boolit.lab.studies.planner import divide, shape
from boolit.lab.training.recipe import PER_RUN

Write = Callable[..., Path]


def config(seed: int, activation: str = "relu", batch: int = 8, **options: float) -> RunConfig:
    return RunConfig(
        data={"name": "xor", "train": 64, "test": 8},
        model={"name": "mlp"},
        training={"epochs": 1, "batch": batch, "learning_rate": 0.01, **options},
        inputs=(2,),
        outputs=1,
        activation=activation,
        widths=(4,),
        parameters=17,
        seed=seed,
        metric=Metric(name="accuracy"),
    )


RUNS = st.lists(
    st.builds(
        config, st.integers(0, 5), st.sampled_from(["relu", "max"]), st.sampled_from([8, 16]), beta1=st.sampled_from([0.8, 0.9])
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda run: run.key,
)


@settings(max_examples=40)
@given(RUNS, st.sampled_from([1, 20_000, 100_000, 2**30]))
def test_cohorts_are_a_partition_into_equal_shapes(runs: list[RunConfig], memory: int) -> None:
    parts = cohorts(runs, memory)
    assert sorted(run.key for part in parts for run in part.runs) == sorted(run.key for run in runs)
    assert all(len({shape(run) for run in part.runs}) == 1 for part in parts)
    if memory == 1:
        assert all(len(part.runs) == 1 for part in parts)
    if memory == 2**30:
        assert len(parts) == len({shape(run) for run in runs})


def test_parts_of_a_cohort_have_nearly_equal_sizes() -> None:
    for count in range(1, 12):
        for parts in range(1, count + 1):
            sizes = [len(part.runs) for part in divide([config(seed) for seed in range(count)], parts)]
            assert (sum(sizes), len(sizes)) == (count, parts)
            assert max(sizes) - min(sizes) <= 1


def test_only_the_seed_and_per_run_options_may_differ_in_a_cohort() -> None:
    base = config(0)
    assert shape(base.replace(seed=9)) == shape(base.replace(split=1)) == shape(base)
    for name in PER_RUN:
        assert shape(base.replace(training={name: 0.123})) == shape(base), name
    for changes in ({"activation": "max"}, {"widths": (8,)}, {"trial": True}):
        assert shape(base.replace(**changes)) != shape(base)
    for name, value in (("epochs", 2), ("batch", 9), ("optimizer", "sgd"), ("schedule", "cosine"), ("learning_rate", "find")):
        assert shape(base.replace(training={name: value})) != shape(base), name


def test_a_plan_has_every_combination_once(write: Write) -> None:
    runs = plan(load_study(write()), "paper").runs
    assert len(runs) == len({run.key for run in runs}) == 2 * 2 * 2 * 3
    assert len({(run.activation, run.budget, run.depth, run.seed) for run in runs}) == len(runs)
    first = plan(load_study(write()), "quick").runs[0]
    assert (first.study, first.profile, first.activation, first.widths, first.budget) == (
        "small",
        "quick",
        "relu",
        (4, 2),
        None,
    )
    assert (first.inputs, first.outputs, first.parameters, first.metric.key) == ((4,), 1, 4 * 5 + 2 * 5 + 3, "test_accuracy")
    assert {run.training.learning_rate for run in runs if run.activation == "xnor_ail"} == {0.02}


def test_keys_do_not_depend_on_what_else_is_planned(write: Write) -> None:
    file = load_study(write())
    assert {run.key for run in plan(file, seeds=2).runs} < {run.key for run in plan(file, seeds=5).runs}
    run = plan(file).runs[1]
    assert run.key == RunConfig.model_validate_json(run.model_dump_json()).key  # with_seeds gives the key of the configuration


def test_budgets_are_met_and_widths_rounded_if_asked(write: Write) -> None:
    for run in plan(load_study(write(("params = [40, 80]", "params = [1000, 5000]"))), "paper").runs:
        assert run.budget is not None
        assert abs(run.parameters - run.budget) < 0.1 * run.budget
    runs = plan(load_study(write(("[[4, 2]]", '[[5, 2]]\nrounding = "nearest"')))).runs
    assert {(run.activation, *run.widths) for run in runs} == {("relu", 5, 2), ("xnor_ail", 4, 2)}


def test_a_cohort_is_known_by_its_runs() -> None:
    runs = tuple(config(seed) for seed in range(3))
    assert Cohort(runs).key == Cohort(runs).key != Cohort(runs[:2]).key
    assert Cohort(runs).subset({runs[2].key, runs[0].key}).runs == (runs[0], runs[2])


@pytest.mark.parametrize(
    ("study", "profile", "counts"),
    [
        ("iraven", "published", {"relu": 44_030_217}),
        ("composed-tmn", "paper", {"relu": 437_929}),
        ("composed-tmnx", "paper", {"relu": 1_148_713}),
        ("parity", "paper", {"relu": 33, "xnor_ail": 10 * 2 + 2 * 3 + 2, "or_and_xnor_ail_d": 4 * 5 + 2 * 7 + 4}),
    ],
)
def test_parameter_counts_are_the_papers(study: str, profile: str, counts: dict[str, int]) -> None:
    planned = plan(load_study(study), profile, seeds=1, sets=[f"sweep.activation={list(counts)}"])
    assert {run.activation: run.parameters for run in planned.runs} == counts


@pytest.mark.parametrize(
    ("study", "label"), [("mitstates-tmn", "tab:tmn-og"), ("mitstates-tmnx", "tab:tmnx"), ("iraven", "tab:sran")]
)
def test_the_rows_of_the_papers_tables_are_in_their_studies(study: str, label: str) -> None:
    rows = {cell.activation for cell in paper.table(label)}
    assert len(rows & set(load_study(study).resolve("paper")[0].sweep.activation)) > 5
