"""Early stopping, checkpoints, and trainings that are interrupted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.training import Checkpoint, Job, Outcome, Recipe, Training, train

MakeJob = Callable[..., Job]
STOPPING: dict[str, Any] = {"valid": True, "patience": 2, "epochs": 12, "learning_rate": 0.05, "schedule": "constant"}
TMN = {"name": "tmn", "attributes": 3, "objects": 3, "vectors": 6, "modules": 2, "layers": 2, "gater_rate": 10.0}
COMPOSED = {"attributes": 3, "objects": 3, "listed": 0.7, "samples": 100, "features": 6, "words": 6, "negatives": 2}
CASES: dict[str, dict[str, Any]] = {
    "adam": {"seeds": (0, 1)},
    "batch norm, dropout": {"model": {"name": "mlp", "normalization": "batch", "dropout": 0.2}, "seeds": (0, 1)},
    "sgd, augmented": {"optimizer": "sgd", "momentum": 0.9, "augmentation": "jitter"},
    "patience, shrinking": {"seeds": tuple(range(16)), **STOPPING},
    "float16": {"precision": "float16", "seeds": (0, 1)},
    "cnn": {"data": {"name": "digits"}, "model": {"name": "cnn"}, "widths": (2,) * 8, "activation": "or_ail", "batch": 512},
    "tmnx, patience": {
        "data": {"name": "composed", **COMPOSED},
        "model": TMN,
        "widths": (4,),
        "activation": "or_ail",
        "seeds": (0, 1, 2),
        "patience": 3,
        "patience_on": "auc",
        "epochs": 5,
    },
}


def outcomes(job: Job, **options: Any) -> list[Outcome]:
    result = train(job, **options)
    assert result is not None
    return result


def interrupted(job: Job, folder: Path, steps: list[int]) -> list[Outcome]:
    """Train a job that is stopped after each of these numbers of steps."""
    for limit in steps:

        def callback(training: Training, limit: int = limit) -> bool:
            return training.steps < limit

        assert train(job, checkpoint=Checkpoint(folder), callback=callback, keep_weights=True) is None
    return outcomes(job, checkpoint=Checkpoint(folder), keep_weights=True)


def assert_equal(results: list[Outcome], expected: list[Outcome]) -> None:
    for result, other in zip(results, expected, strict=True):
        assert (result.state, result.metrics, result.history) == (other.state, other.metrics, other.history)
        assert result.weights is not None
        assert other.weights is not None
        assert all(torch.equal(values, other.weights[name]) for name, values in result.weights.items())


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_training_gives_equal_results(make_job: MakeJob, tmp_path: Path, case: str) -> None:
    job = make_job(**CASES[case])
    last = job.steps_per_epoch * job.recipe.epochs - 1
    steps = [1, 2 * job.steps_per_epoch] + ([last] if job.recipe.patience is None else [2 * job.steps_per_epoch + 3])
    assert_equal(interrupted(job, tmp_path, steps), outcomes(job, keep_weights=True))


@pytest.mark.parametrize("damage", ["truncated", "other runs", "empty"])
def test_an_unusable_checkpoint_is_not_used(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    job = make_job()
    other = make_job(widths=(6, 2)) if damage == "other runs" else job
    assert train(other, checkpoint=Checkpoint(tmp_path), callback=lambda _: False) is None
    path = Checkpoint(tmp_path).path
    if damage != "other runs":
        path.write_bytes(path.read_bytes()[:-10] if damage == "truncated" else b"")
    assert_equal(outcomes(job, checkpoint=Checkpoint(tmp_path), keep_weights=True), outcomes(job, keep_weights=True))
    assert "its runs start again" in capsys.readouterr().err


def test_a_checkpoint_is_replaced_atomically(make_job: MakeJob, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "cohort", every_seconds=0)
    assert train(make_job(), checkpoint=checkpoint) is not None
    assert [path.name for path in checkpoint.path.parent.iterdir()] == ["training.safetensors"]
    checkpoint.path.unlink()
    checkpoint.path.parent.rmdir()
    checkpoint.path.parent.write_text("not a folder")
    with pytest.raises(UserError, match="cannot write the checkpoint"):
        train(make_job(), checkpoint=checkpoint, callback=lambda _: False)


def test_seconds_before_an_interruption_count(make_job: MakeJob, tmp_path: Path) -> None:
    job, checkpoint = make_job(), Checkpoint(tmp_path)
    assert train(job, checkpoint=checkpoint, callback=lambda training: training.steps < 3) is None
    state = checkpoint.load()
    assert state is not None
    checkpoint.save(state | {"seconds": torch.tensor(1000.0)})
    result = train(job, checkpoint=checkpoint)
    assert result is not None
    assert sum(outcome.seconds for outcome in result) > 1000


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_stopped_run_reports_its_best_epoch(make_job: MakeJob, precision: str) -> None:
    job = make_job(seeds=tuple(range(16)), precision=precision, **STOPPING)
    results = outcomes(job, keep_weights=True)
    lengths = {outcome.metrics["epochs"] for outcome in results}
    assert len(lengths) > 1  # so the stack shrank
    for run, outcome in enumerate(results):
        losses = outcome.history["valid_loss"]
        best = min(range(len(losses)), key=losses.__getitem__)
        assert outcome.metrics["best_epoch"] == best + 1
        assert len(losses) == min(12, best + 1 + 2) == outcome.metrics["epochs"]
        assert outcome.metrics["test_loss"] == outcome.history["test_loss"][best]
        network = job.build(run)
        network.load_state_dict(outcome.weights or {})
        test = job.dataset.splits["test"]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(network.eval()(test.x), test.y)
        assert float(loss.detach()) == pytest.approx(outcome.metrics["test_loss"], rel=1e-4)


@pytest.mark.parametrize(("goal", "name"), [("max", "rises"), ("min", "falls"), ("min", "rises")])
def test_stopping_follows_the_goal_of_the_metric(make_job: MakeJob, goal: str, name: str) -> None:
    calls = {"rises": 0, "falls": 0}

    def metrics(split: str, outputs: Tensor) -> dict[str, Tensor]:
        for key in calls:
            calls[key] += split == "valid"
        return {key: torch.full(outputs.shape[:1], (1.0 if key == "rises" else -1.0) * calls[key]) for key in calls}

    job = make_job(**STOPPING, patience_on=name, patience_goal=goal)
    outcome = outcomes(replace(job, dataset=replace(job.dataset, extra_metrics=metrics)))[0]
    assert outcome.metrics["epochs"] == (12 if (goal, name) in (("max", "rises"), ("min", "falls")) else 3)


def test_an_unknown_metric_needs_a_goal() -> None:
    with pytest.raises(ValidationError, match="patience_goal"):
        Recipe(epochs=1, batch=1, patience=1, patience_on="mae")
    assert Recipe(epochs=1, batch=1, patience=1, patience_on="rmse").stopping_sign == 1
    assert Recipe(epochs=1, batch=1, patience=1, patience_on="auc").stopping_sign == -1
