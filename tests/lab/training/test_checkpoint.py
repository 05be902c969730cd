"""A training that was stopped goes on exactly where it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from boolit.lab.errors import UserError
from boolit.lab.training import Checkpoint, Finished, Job, StackedTraining, train

Config = Callable[..., dict[str, Any]]
RICH: dict[str, Any] = {
    "model": {"name": "mlp", "normalisation": "batch", "dropout": 0.1},
    "width": [8, 8],
    "training": {"epochs": 3, "batch": 64, "augmentation": "jitter"},
}


def stopped_after(steps: int) -> Any:
    return lambda training: training.steps < steps


def assert_same(one: Finished | None, other: Finished | None) -> None:
    assert one is not None
    assert other is not None
    for ours, theirs in zip(one.outcomes, other.outcomes, strict=True):
        assert ours.metrics == pytest.approx(theirs.metrics, abs=0, rel=0, nan_ok=True)
        assert ours.history == theirs.history
        assert ours.state == theirs.state
        assert all(torch.equal(value, theirs.weights[name]) for name, value in ours.weights.items())


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("steps", [1, 4, 11, 12])
def test_a_resumed_training_ends_bitwise_as_an_unbroken_one(tmp_path: Path, steps: int, optimiser: str, config: Config) -> None:
    changes = RICH | {"training": RICH["training"] | {"optimiser": optimiser, "momentum": 0.9}}
    job = Job.of([config(seed, **changes) for seed in range(3)])
    assert train(job, Checkpoint(tmp_path), stopped_after(steps)) is None
    assert_same(train(job, Checkpoint(tmp_path)), train(job))


@pytest.mark.parametrize("steps", [1, 3])
def test_its_batches_lie_in_memory_as_those_of_an_unbroken_one(tmp_path: Path, steps: int, config: Config) -> None:
    """Bitwise by construction: a product of the same numbers in another layout may be summed in another order."""
    job = Job.of([config(seed, width=[8, 8]) for seed in range(3)])
    assert train(job, Checkpoint(tmp_path), stopped_after(steps)) is None
    unbroken, resumed = StackedTraining(job), StackedTraining(job)
    Checkpoint(tmp_path).restore(resumed)
    for _ in range(steps):
        unbroken.step()
    for ours, theirs in zip(resumed._batch(), unbroken._batch(), strict=True):
        assert torch.equal(ours, theirs)
        assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())


def test_stopping_again_and_again_changes_nothing(tmp_path: Path, config: Config) -> None:
    job = Job.of([config(seed, **RICH) for seed in range(2)])
    for steps in (2, 5, 7):
        assert train(job, Checkpoint(tmp_path), stopped_after(steps)) is None
    assert_same(train(job, Checkpoint(tmp_path)), train(job))


def test_checkpoints_on_the_way_change_nothing(tmp_path: Path, config: Config) -> None:
    job = Job.of([config(seed, **RICH) for seed in range(2)])
    assert_same(train(job, Checkpoint(tmp_path, every=0)), train(job))


def test_a_diverged_run_stays_diverged(tmp_path: Path, config: Config) -> None:
    changes = {"data": {"name": "parity8", "train": 128, "test": 32}, "width": [8], "activation": "relu"}
    configs = [
        config(i, training={"optimiser": "sgd", "learning_rate": rate}, **changes) for i, rate in enumerate((0.01, 1e30))
    ]
    job = Job.of(configs)
    assert train(job, Checkpoint(tmp_path), stopped_after(6)) is None
    resumed = train(job, Checkpoint(tmp_path))
    assert_same(resumed, train(job))
    assert resumed is not None
    assert [outcome.state for outcome in resumed.outcomes] == ["finished", "diverged"]


def test_the_found_learning_rate_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    job = Job.of([config(training={"learning_rate": "find"})])
    assert train(job, Checkpoint(tmp_path), stopped_after(2)) is None
    monkeypatch.setattr("boolit.lab.training.cohort.find_learning_rate", lambda *_: pytest.fail("searched again"))
    resumed = train(job, Checkpoint(tmp_path))
    monkeypatch.undo()
    assert_same(resumed, train(job))


def test_a_half_written_checkpoint_is_never_read(tmp_path: Path, config: Config) -> None:
    job, checkpoint = Job.of([config()]), Checkpoint(tmp_path)
    assert train(job, checkpoint, stopped_after(3)) is None
    (tmp_path / "training.99.part").write_bytes(b"torn")
    assert_same(train(job, Checkpoint(tmp_path)), train(job))
    checkpoint.delete()
    assert not tmp_path.exists()


@pytest.mark.parametrize("damage", [b"", b"no safetensors", None])
def test_a_damaged_checkpoint_says_so(tmp_path: Path, damage: bytes | None, config: Config) -> None:
    job, checkpoint = Job.of([config()]), Checkpoint(tmp_path)
    assert train(job, checkpoint, stopped_after(3)) is None
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:-40] if damage is None else damage)
    with pytest.raises(UserError, match=r"is damaged .* delete it"):
        train(job, checkpoint)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path, config: Config) -> None:
    assert train(Job.of([config()]), Checkpoint(tmp_path), stopped_after(3)) is None
    with pytest.raises(UserError, match="instead of"):
        Checkpoint(tmp_path).restore(StackedTraining(Job.of([config(), config(1)])))


def test_the_time_before_a_restart_counts(tmp_path: Path, config: Config) -> None:
    training, checkpoint = StackedTraining(Job.of([config()])), Checkpoint(tmp_path)
    checkpoint.save(training, seconds=1000.0)
    finished = train(Job.of([config()]), checkpoint)
    assert finished is not None
    assert finished.seconds > 1000


def test_a_checkpoint_is_due_after_its_time(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path, every=0).due
    assert not Checkpoint(tmp_path, every=3600).due
