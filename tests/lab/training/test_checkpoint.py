"""A training that was stopped goes on exactly where it was."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.training import Checkpoint, CohortResult, Job, StackedTraining, train
from boolit.lab.training.checkpoint import FORMAT
from boolit.lab.training.stacked import Position

Config = Callable[..., dict[str, Any]]
RICH: dict[str, Any] = {
    "model": {"name": "mlp", "normalisation": "batch", "dropout": 0.1},
    "width": [8, 8],
    "training": {"epochs": 3, "batch": 64, "augmentation": "jitter"},
}


def stopped_after(steps: int) -> Any:
    return lambda training: training.steps < steps


def assert_same(one: CohortResult | None, other: CohortResult | None) -> None:
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


def flipped(content: bytes, place: int) -> bytes:
    """One bit of it changed."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def edited(content: bytes) -> bytes:
    """Another position, as an editor would write it."""
    assert b'\\"epoch\\": 0' in content
    return content.replace(b'\\"epoch\\": 0', b'\\"epoch\\": 3')


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "text": lambda _: b"no safetensors",
    "short": lambda content: content[:-40],
    "a bit of a weight": lambda content: flipped(content, len(content) - 3),
    "a bit of the header": lambda content: flipped(content, 30),
    "a bit of the header's length": lambda content: flipped(content, 0),
    "longer": lambda content: content + b"0",
    "no dictionary": lambda _: (7).to_bytes(8, "little") + b"[1,2,3]",
    "metadata that is none": lambda _: (20).to_bytes(8, "little") + b'{"__metadata__":[1]}',
    "nothing": lambda content: len(content) * b"\0",
    "an edited position": edited,
}


def run_with(folder: Path, job: Job) -> tuple[CohortResult | None, list[str], int]:
    """A training from what is in a folder: its end, what it said, and how many steps it made."""
    said: list[str] = []
    steps: list[StackedTraining] = []

    def watch(training: StackedTraining) -> bool:
        steps.append(training)
        return True

    return train(job, Checkpoint(folder, warn=said.append), watch), said, len(steps)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("before", [False, True])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_or_the_beginning(
    tmp_path: Path, kind: str, before: bool, config: Config
) -> None:
    job, checkpoint = Job.of([config(seed) for seed in range(2)]), Checkpoint(tmp_path, steps=1 if before else None)
    assert train(job, checkpoint, stopped_after(3)) is None
    assert checkpoint.previous.exists() == before
    checkpoint.path.write_bytes(DAMAGE[kind](checkpoint.path.read_bytes()))
    finished, said, steps = run_with(tmp_path, job)
    whole, nothing, all_steps = run_with(tmp_path / "none", job)
    assert_same(finished, whole)
    assert (len(said), nothing) == (1, [])
    assert said[0].endswith("training.previous.safetensors" if before else "its runs start again")
    assert all_steps - steps == (2 if before else 0)


def test_both_files_damaged_is_one_line_and_a_new_beginning(tmp_path: Path, config: Config) -> None:
    job, checkpoint = Job.of([config()]), Checkpoint(tmp_path, steps=1)
    assert train(job, checkpoint, stopped_after(3)) is None
    for path in (checkpoint.path, checkpoint.previous):
        path.write_bytes(flipped(path.read_bytes(), 100))
    finished, said, _ = run_with(tmp_path, job)
    assert_same(finished, train(job))
    assert len(said) == 1
    assert "start again" in said[0]


def test_a_rate_is_sought_again_if_the_checkpoint_that_holds_it_is_damaged(tmp_path: Path, config: Config) -> None:
    job = Job.of([config(training={"learning_rate": "find"})])
    checkpoint = Checkpoint(tmp_path, warn=lambda _: None)
    assert train(job, checkpoint, stopped_after(2)) is None
    checkpoint.path.write_bytes(flipped(checkpoint.path.read_bytes(), 200))
    assert_same(train(job, checkpoint), train(job))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"FORMAT": "3"}, "has the format '3' of another boolit"),
        ({"cohort": "others"}, "belongs to other runs"),
        ({"at": (3, 1)}, "at epoch 3 and step 1"),
        ({"at": (0, -1)}, "at epoch 0 and step -1"),
        ({"seconds": float("nan")}, "took nan seconds"),
    ],
)
def test_what_is_whole_but_not_ours_is_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    training = StackedTraining(Job.of([config(training={"epochs": 2})]))
    if "at" in change:
        training.at = Position(*change["at"])
    with monkeypatch.context() as patched:
        patched.setattr("boolit.lab.training.checkpoint.FORMAT", change.get("FORMAT", FORMAT))
        Checkpoint(tmp_path, cohort=change.get("cohort", "")).save(training, change.get("seconds", 1.0))
    said: list[str] = []
    assert Checkpoint(tmp_path, warn=said.append).restore(StackedTraining(training.job)) is None
    assert len(said) == 1
    assert sentence in said[0]


def test_a_checkpoint_of_another_shape_is_refused_and_changes_nothing(tmp_path: Path, config: Config) -> None:
    assert train(Job.of([config()]), Checkpoint(tmp_path), stopped_after(3)) is None
    said: list[str] = []
    other, fresh = (StackedTraining(Job.of([config(), config(1)])) for _ in range(2))
    assert Checkpoint(tmp_path, warn=said.append).restore(other) is None
    assert "instead of" in said[0]
    assert torch.equal(other.flat.values, fresh.flat.values)
    assert other.at == Position()


def test_a_disk_without_room_for_a_checkpoint_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    training = StackedTraining(Job.of([config()]))
    checkpoint = Checkpoint(tmp_path)
    checkpoint.save(training, 1.0)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(UserError, match=r"No space left on device\); make room for it and run again"):
            checkpoint.save(training, 2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["training.safetensors"]
    assert checkpoint.restore(training) == 1.0


def test_the_time_before_a_restart_counts(tmp_path: Path, config: Config) -> None:
    training, checkpoint = StackedTraining(Job.of([config()])), Checkpoint(tmp_path)
    checkpoint.save(training, seconds=1000.0)
    finished = train(Job.of([config()]), checkpoint)
    assert finished is not None
    assert finished.seconds > 1000


def test_a_checkpoint_is_due_after_its_time(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path, every=0).due_after(1)
    assert not Checkpoint(tmp_path, every=3600).due_after(1)


def test_a_checkpoint_from_elsewhere_is_kept_if_it_is_whole_newer_and_of_the_same_runs(tmp_path: Path, config: Config) -> None:
    job = Job.of([config(training={"epochs": 3, "batch": 64})])
    elsewhere, said = Checkpoint(tmp_path / "elsewhere", cohort="ours"), list[str]()
    kept = Checkpoint(tmp_path / "kept", cohort="ours", warn=said.append)
    contents = []
    for steps in (1, 2):
        assert train(job, elsewhere, stopped_after(steps)) is None
        contents.append(elsewhere.path.read_bytes())
    older, newer = contents
    assert kept.receive(older)
    for place in (3, len(newer) // 2, len(newer) - 1):
        assert not kept.receive(newer[:place] + bytes([newer[place] ^ 1]) + newer[place + 1 :])
    assert not kept.receive(newer[:-5])
    assert not kept.receive(b"")
    assert len(said) == 5
    assert not Checkpoint(tmp_path / "kept", cohort="others", warn=said.append).receive(newer)
    assert said[-1].endswith("belongs to other runs; it is not used")
    assert kept.path.read_bytes() == kept.read() == older
    assert kept.receive(newer)
    assert not kept.receive(older)
    assert (kept.read(), kept.previous.read_bytes(), kept.saved) == (newer, older, elsewhere.saved)
    assert_same(train(job, kept), train(job))


def test_the_time_of_a_transfer_counts_like_that_of_writing(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, every=0.0)
    assert checkpoint.due_after(1)
    checkpoint.transfer = 3600.0
    assert not checkpoint.due_after(1)
