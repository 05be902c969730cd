"""A run's key is a function of what its result depends on, and of nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from boolit.lab.runs import Metric, RunConfig, canonical, job, options


def config(**changes: Any) -> RunConfig:
    entries: dict[str, Any] = {
        "data": {"name": "xor", "train": 64},
        "model": {"name": "mlp"},
        "training": {"epochs": 2, "batch": 8},
        "inputs": (2,),
        "outputs": 1,
        "activation": "relu",
        "widths": (4,),
        "parameters": 17,
        "metric": Metric(name="accuracy"),
    }
    return RunConfig.model_validate(entries | changes)


CHANGES: list[dict[str, Any]] = [
    {"data": {"name": "xor", "train": 65}},
    {"model": {"name": "mlp", "normalization": "batch"}},
    {"training": {"epochs": 3, "batch": 8}},
    {"activation": "max"},
    {"widths": (8,)},
    {"seed": 1},
    {"split": 0},
    {"trial": True},
    {"arithmetic": 99},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_affects_the_result_changes_the_key(change: dict[str, Any]) -> None:
    assert config(**change).key != config().key


def test_labels_and_defaults_do_not_change_the_key() -> None:
    labels = {
        "study": "mine",
        "profile": "paper",
        "stage": "final",
        "budget": 7,
        "parameters": 1,
        "metric": Metric(name="loss"),
    }
    assert labels.keys() == RunConfig.LABELS
    assert config(**labels).key == config().key
    assert config(training={"epochs": 2, "batch": 8, "beta1": 0.9}).key == config().key
    assert options(config().data) == {"name": "xor", "train": 64}


def test_json_and_copies_keep_the_key() -> None:
    run = config(seed=3, training={"epochs": 2, "batch": 8, "learning_rate": "find"})
    assert RunConfig.model_validate_json(run.model_dump_json()) == run
    assert RunConfig.model_validate_json(run.model_dump_json()).key == run.key
    assert run.replace(seed=4).key != run.key == run.replace(seed=4).replace(seed=3).key
    assert [copy.key for copy in run.with_seeds([3, 4])] == [run.key, run.replace(seed=4).key]
    changed = run.replace(training={"epochs": 9})
    assert (changed.training.epochs, changed.training.batch, run.training.epochs) == (9, 8, 2)


@pytest.mark.parametrize("wrong", [{"seed": "1"}, {"widths": 4}, {"unknown": 1}, {"data": {"name": "xor", "trane": 1}}])
def test_wrong_entries_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**wrong)


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"rate": float("nan")})


@pytest.mark.parametrize(("name", "goal", "better", "worse"), [("accuracy", "max", 0.9, 0.8), ("rmse", "min", 0.8, 0.9)])
def test_a_metric_declares_its_direction_and_what_solves_the_task(name: str, goal: str, better: float, worse: float) -> None:
    metric = Metric(name=name, split="valid", solved=0.85)
    assert (metric.key, metric.goal, metric.percent) == (f"valid_{name}", goal, goal == "max")
    assert metric.sign * better > metric.sign * worse
    assert [metric.solves(value) for value in (better, worse, 0.85, float("nan"))] == [True, False, True, False]
    assert not Metric(name=name).solves(better)


def test_an_unknown_metric_must_declare_its_direction() -> None:
    with pytest.raises(ValidationError):
        Metric(name="mae")
    assert Metric(name="mae", goal="min", percent=False).sign == -1


def test_a_job_has_the_data_and_the_options_of_its_runs() -> None:
    made = job([config(seed=seed, training={"epochs": 2, "batch": 8, "peak": 0.1 + seed / 10}) for seed in (0, 5)])
    assert (made.runs, made.seeds, made.widths, made.activation) == (2, (0, 5), (4,), "relu")
    assert [recipe.peak for recipe in made.recipes] == [0.1, 0.6]
    assert len(made.dataset.splits["train"]) == 64
