"""Runs with rows of their own: what each sees, what it standardises by, and what it never sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boolit.lab.datasets import Dataset, Split, load, source
from boolit.lab.runs import RunConfig
from boolit.lab.training import CohortResult, Job, StackedTraining, train
from boolit.lab.training.metrics import ResampledRows

ROWS = 90


@pytest.fixture(params=["classify", "regress"])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    """A run on a table of quantities, a flag and a category."""
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    drawn = np.random.default_rng(0)
    x, flags = drawn.normal(1e4, 3, (ROWS, 2)), drawn.integers(2, size=ROWS)
    y = drawn.integers(3, size=ROWS) if request.param == "classify" else 500 + 70 * drawn.normal(size=ROWS)
    rows = zip(x.tolist(), flags.tolist(), y.tolist(), strict=True)
    lines = [f"{a!r},{b!r},{flag},{'rgb'[i % 3]},{label!r}" for i, ((a, b), flag, label) in enumerate(rows)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,flag,colour,y", *lines]) + "\n")
    data = source({"name": "table", "path": str(tmp_path / "t.csv"), "target": "y", "task": request.param})
    recipe = {"optimiser": "adamw", "learning_rate": 0.01, "epochs": 3, "batch": 16, "patience": 5}
    common = {"model": {"name": "mlp", "normalisation": "batch"}, "activation": "or_ail", "width": [8], "seed": 1}
    return RunConfig.from_dict({"data": data.model_dump(mode="json"), "training": recipe, **common})


def on(config: RunConfig, split: int, **changes: Any) -> RunConfig:
    return config.replace(split=split, seed=split, **changes)


def standardised(dataset: Dataset, number: int) -> Dataset:
    """The plain dataset of one split: its rows picked out and standardised beforehand."""
    assert dataset.pool is not None
    assert dataset.resample is not None
    own = dataset.resample(number)
    x, y = (dataset.pool.x - own.mean) / own.scale, dataset.pool.y
    if dataset.task == "regression":
        y = (y - torch.tensor(own.target_mean)) / torch.tensor(own.target_scale)
    splits = {name: Split(x[rows], y[rows]) for name, rows in own.rows.items()}
    return replace(dataset, splits=splits, unit=dataset.unit * own.target_scale, pool=None, resample=None)


def weights(finished: CohortResult | None) -> list[dict[str, torch.Tensor]]:
    assert finished is not None
    return [outcome.weights for outcome in finished.outcomes]


def test_moments_are_of_the_run_s_own_training_rows(config: RunConfig) -> None:
    dataset = load(source(config.data))
    for number in (1, 2):
        job = Job.of([on(config, number)])
        own = ResampledRows(job)
        x, y = own.take("train", torch.arange(len(job.resamples[0].rows["train"])).unsqueeze(0))
        # float32 keeps x to 2⁻²⁴ of |x| ≤ 4 standard deviations, and three operations on it do as much again each.
        bound = 4 * 4 * 2.0**-24
        assert x[0, :, :2].double().mean(0).abs().max() < bound
        assert (x[0, :, :2].double().std(0, correction=0) - 1).abs().max() < bound
        assert set(x[0, :, 2:].flatten().tolist()) == {0.0, 1.0}
        assert len(job.resamples[0].rows["train"]) < ROWS
        if dataset.task == "regression":
            assert y.double().mean().abs() < bound
            assert (y.double().std(correction=0) - 1).abs() < bound


def test_every_run_of_a_stack_sees_what_it_would_see_alone(config: RunConfig) -> None:
    stack = ResampledRows(Job.of([on(config, number) for number in (1, 2, 3)]))
    places = torch.stack([torch.randperm(10), torch.arange(10), torch.arange(4, 14)])
    for split in ("train", "valid", "test"):
        x, y = stack.take(split, places)
        for run, number in enumerate((1, 2, 3)):
            plain = standardised(load(source(config.data)), number).splits[split]
            torch.testing.assert_close(x[run], plain.x[places[run]], rtol=0, atol=0)
            torch.testing.assert_close(y[run], plain.y[places[run]], rtol=0, atol=0)


def test_a_run_is_trained_as_on_a_table_that_was_split_and_standardised_beforehand(config: RunConfig) -> None:
    """Bitwise, as both are stacks of one run with the same calls on the same numbers."""
    for number in (1, 2):
        own = Job.of([on(config, number)])
        plain = replace(own, dataset=standardised(own.dataset, number), resamples=())
        one, other = train(own), train(plain)
        assert one is not None
        assert other is not None
        assert all(bool((a == b).all()) for a, b in zip(weights(one)[0].values(), weights(other)[0].values(), strict=True))
        assert one.outcomes[0].metrics == pytest.approx(other.outcomes[0].metrics, rel=1e-6)


def poisoned(job: Job) -> Job:
    """The same job with the targets of all test rows of all its runs spoilt."""
    pool = job.dataset.pool
    assert pool is not None
    y = pool.y.clone()
    for own in job.resamples:
        rows = own.rows["test"]
        y[rows] = (y[rows] + 1) % 3 if job.dataset.task == "classes" else torch.full_like(y[rows], 1e30)
    return replace(job, dataset=replace(job.dataset, pool=Split(pool.x, y)))


def test_test_rows_change_no_weight_and_no_validation_metric(config: RunConfig) -> None:
    """Errors of 1e30, whose squares are infinite, do not even end a run."""
    job = Job.of([on(config, 2, training={"learning_rate": rate}) for rate in (0.001, 0.1)])
    one, other = train(job), train(poisoned(job))
    assert one is not None
    assert other is not None
    for own, spoilt in zip(one.outcomes, other.outcomes, strict=True):
        assert own.state == spoilt.state == "finished"
        assert all(bool((own.weights[name] == spoilt.weights[name]).all()) for name in own.weights)
        same = [name for name in own.metrics if not name.startswith("test_")]
        assert [own.metrics[name] for name in same] == [spoilt.metrics[name] for name in same]
        assert own.metrics["test_loss"] != spoilt.metrics["test_loss"]


def test_a_trial_reads_no_test_row(config: RunConfig) -> None:
    job = Job.of([on(config, 1, trial=True)])
    kept = job.resamples[0]
    blind = replace(job, resamples=(replace(kept, rows={name: kept.rows[name] for name in ("train", "valid")}),))
    finished = train(blind)
    assert finished is not None
    assert not any(name.startswith("test_") for name in finished.outcomes[0].metrics)


def test_evaluation_in_pieces_is_the_same(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job.of([on(config, number) for number in (1, 2)])
    model = StackedTraining(job).model
    whole = ResampledRows(job).evaluate(model, "test")
    monkeypatch.setattr("boolit.lab.training.metrics.EVALUATION_NUMEL", 100)
    monkeypatch.setattr("boolit.lab.training.metrics.CACHED_NUMEL", 0)
    # Means of float32 losses, of few samples each: 2⁻²⁴ of them for each of 18 samples at most.
    torch.testing.assert_close(ResampledRows(job).evaluate(model, "test"), whole, rtol=18 * 2.0**-24, atol=0)


def test_data_with_one_split_has_no_others() -> None:
    recipe = {"epochs": 1, "batch": 4}
    config = RunConfig(data={"name": "xor"}, model={"name": "mlp"}, activation="relu", width=[2], split=1, training=recipe)
    with pytest.raises(ValueError, match="its data has one split only"):
        Job.of([config])
