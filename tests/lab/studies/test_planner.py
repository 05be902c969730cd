"""Runs and cohorts: nothing is lost, nothing is mixed that must not be, and keys stay what they are."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.lab.runs import Run, RunConfig
from boolit.lab.studies import Cohort, load_study, plan
from boolit.lab.studies.planner import cohorts, shape
from boolit.lab.training import Job
from boolit.lab.training.recipe import PER_RUN

Write = Callable[..., Path]


def config(seed: int, activation: str, batch: int, **own: float) -> RunConfig:
    return RunConfig.from_dict(
        {
            "data": {"name": "xor", "train": 64, "test": 8},
            "model": {"name": "mlp"},
            "activation": activation,
            "width": [4],
            "seed": seed,
            "training": {"epochs": 1, "batch": batch, "learning_rate": 0.01, **own},
        }
    )


CONFIGS = st.lists(
    st.builds(
        config,
        st.integers(0, 5),
        st.sampled_from(["relu", "max"]),
        st.sampled_from([8, 16]),
        beta1=st.sampled_from([0.8, 0.9]),
        peak=st.sampled_from([0.2, 0.3]),
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda own: own.key,
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS, st.integers(1, 9))
def test_cohorts_are_a_partition_into_equal_shapes_that_fit(configs: list[RunConfig], at_once: int) -> None:
    runs = [Run(own) for own in configs]
    memory = at_once * max(Job.of([own]).bytes_per_run() for own in configs)
    found = cohorts(runs, memory)
    assert sorted(run.key for cohort in found for run in cohort.runs) == sorted(run.key for run in runs)
    assert all(len({shape(run.config) for run in cohort.runs}) == 1 for cohort in found)
    assert all(
        sum(cohort.job().bytes_per_run() for _ in cohort.runs) <= max(memory, cohort.job().bytes_per_run()) for cohort in found
    )
    groups = {shape(run.config) for run in runs}
    assert len(found) >= len(groups)
    if at_once >= len(runs):
        assert len(found) == len(groups)


@settings(max_examples=60, deadline=None)
@given(CONFIGS)
def test_parts_of_a_shape_are_of_nearly_equal_size(configs: list[RunConfig]) -> None:
    runs = [Run(own.replace(activation="relu")) for own in configs]
    sizes: dict[str, list[int]] = {}
    for cohort in cohorts(runs, 4 * Job.of(configs[:1]).bytes_per_run()):
        sizes.setdefault(shape(cohort.runs[0].config), []).append(len(cohort.runs))
    assert all(max(own) - min(own) <= 1 for own in sizes.values())


def test_only_the_seed_and_per_run_numbers_may_differ() -> None:
    base = config(0, "relu", 8)
    for name in PER_RUN:
        assert shape(base.replace(training={name: 0.123})) == shape(base), name
    assert shape(base.replace(seed=9)) == shape(base)
    for other in ({"activation": "max"}, {"width": [8]}, {"data": {"name": "xor", "train": 65}}, {"model": {"name": "cnn"}}):
        assert shape(base.replace(**other)) != shape(base)
    for name, value in (("epochs", 2), ("batch", 9), ("optimiser", "sgd"), ("schedule", "cosine"), ("learning_rate", "find")):
        assert shape(base.replace(training={name: value})) != shape(base), name


def test_a_plan_has_every_combination_once(write: Write) -> None:
    runs = plan(load_study(write()), "paper").runs
    assert len(runs) == len({run.key for run in runs}) == 2 * 2 * 2 * 3
    combinations = {(r.config.activation, r.config.budget, r.config.depth, r.config.seed) for r in runs}
    assert len(combinations) == len(runs)


def test_configurations_say_what_their_readers_need(write: Write) -> None:
    run = plan(load_study(write()), "quick").runs[0]
    assert run.config.study == "small"
    assert run.config.profile == "quick"
    assert run.config.activation == "relu"
    assert run.config.width == [4, 2]
    assert run.config.depth == 2
    assert run.config.budget is None
    assert run.config.parameters == 4 * 5 + 2 * 5 + 3
    assert run.config.to_dict()["metric"] == {"name": "accuracy", "split": "test", "goal": "max"}
    assert run.config.inputs == [4]
    assert run.config.seed == 0


def test_budgets_are_met_as_closely_as_the_activation_allows(write: Write) -> None:
    for run in plan(load_study(write(("params = [40, 80]", "params = [1000, 5000]"))), "paper").runs:
        budget, count = run.config.budget, run.config.parameters
        assert isinstance(budget, int)
        assert abs(count - budget) < 0.1 * budget


def test_widths_can_be_rounded_instead_of_refused(write: Write) -> None:
    runs = plan(load_study(write(("[[4, 2]]", '[[5, 2]]\nrounding = "nearest"')))).runs
    assert {(run.config.activation, *run.config.width) for run in runs} == {("relu", 5, 2), ("xnor_ail", 4, 2)}


def test_hyper_parameters_of_an_activation_are_its_own(write: Write) -> None:
    rates = {run.config.activation: run.config.training["learning_rate"] for run in plan(load_study(write())).runs}
    assert rates == {"relu": 0.01, "xnor_ail": 0.02}


def test_keys_do_not_depend_on_what_else_is_planned(write: Write) -> None:
    file = load_study(write())
    few, many = plan(file, seeds=2), plan(file, seeds=5, memory=1)
    assert {run.key for run in few.runs} < {run.key for run in many.runs}


def test_a_cohort_is_known_by_its_runs() -> None:
    runs = tuple(Run(config(seed, "relu", 8)) for seed in range(3))
    assert Cohort(runs).key == Cohort(runs).key != Cohort(runs[:2]).key
    assert Cohort(runs).of([runs[2].key, runs[0].key]).runs == (runs[0], runs[2])
