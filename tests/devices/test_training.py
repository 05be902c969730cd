"""What surrounds a step on another device: checkpoints from and for any, stacks that shrink, and no waiting between steps."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.common import devices
from boolit.lab.common.devices import DeviceCopies, use_device
from boolit.lab.datasets import Dataset, Resample, Split
from boolit.lab.models import family
from boolit.lab.runs import RunConfig
from boolit.lab.training import Checkpoint, CohortResult, Job, Recipe, StackedTraining, train
from boolit.lab.training.cohort import ShrinkingStack
from boolit.lab.training.single import LossScale, SingleTraining

PARITY = {"name": "parity", "train": 64, "test": 40}
SPLIT = {"train": range(40), "valid": range(40, 50), "test": range(50, 60)}


def job(runs: int = 2, **training: Any) -> Job:
    recipe = {"learning_rate": 0.01, "epochs": 3, "batch": 16, **training}
    model = {"name": "mlp", "normalisation": "batch", "dropout": 0.1}
    base = {"data": PARITY, "model": model, "activation": "or_ail", "width": [4, 4], "training": recipe}
    return Job.of([RunConfig.from_dict({**base, "seed": seed}) for seed in range(runs)])


def noise(runs: int) -> Job:
    """Rows of a table, another split of them for every run, with nothing to be learnt: runs stop one after the other."""
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 3, generator=drawn), torch.randn(60, 1, generator=drawn)

    def resample(number: int) -> Resample:
        order = torch.randperm(60, generator=torch.Generator().manual_seed(number))
        rows = {name: order[list(part)] for name, part in SPLIT.items()}
        own = x[rows["train"]]
        return Resample(rows, own.mean(0), own.std(0), 0.5, 2.0)

    splits = {name: Split(x[list(part)], y[list(part)]) for name, part in SPLIT.items()}
    data = Dataset(splits, "regression", 1, pool=Split(x, y), resample=resample)
    recipe = Recipe.model_validate({"learning_rate": 0.1, "epochs": 8, "batch": 8, "patience": 1})
    resamples = tuple(resample(number) for number in range(runs))
    return Job(data, family({"name": "mlp"}), "relu", (4,), (recipe,) * runs, tuple(range(runs)), resamples)


def assert_same(one: CohortResult | None, other: CohortResult | None) -> None:
    assert one is not None
    assert other is not None
    for own, its in zip(one.outcomes, other.outcomes, strict=True):
        assert (own.state, own.metrics, own.history, own.steps) == (its.state, its.metrics, its.history, its.steps)
        assert all(torch.equal(values, its.weights[name]) for name, values in own.weights.items())


@pytest.mark.parametrize("first", ["cpu", "standin"])
@pytest.mark.parametrize("recipe", [{}, {"patience": 2, "patience_on": "loss"}, {"ema": 0.9, "clip": 1.0}], ids=str)
def test_a_training_resumes_from_a_checkpoint_of_another_device(
    first: str, recipe: dict[str, Any], tmp_path: Path, standin: ModuleType
) -> None:
    wanted = job(1 if "ema" in recipe else 2, **recipe)
    if "patience" in recipe:  # parity has no rows to validate with
        splits = {**wanted.dataset.splits, "valid": wanted.dataset.splits["test"]}
        wanted = replace(wanted, dataset=replace(wanted.dataset, splits=splits))
    with use_device("cpu"):
        unbroken = train(wanted)
    with use_device(first):
        assert train(wanted, Checkpoint(tmp_path), lambda training: training.steps < 6) is None
    with use_device("cpu" if first == standin.NAME else standin.NAME):
        assert_same(train(wanted, Checkpoint(tmp_path)), unbroken)


def test_a_stack_of_runs_with_rows_of_their_own_shrinks(standin: ModuleType) -> None:
    wanted = noise(24)
    expected = train(wanted)
    with use_device(standin.NAME):
        stack = ShrinkingStack(StackedTraining(wanted))
        while not stack.done:
            stack.step()
        assert stack.active.job.runs < wanted.runs
        assert_same(train(wanted), expected)


def test_a_diverged_run_is_frozen(standin: ModuleType) -> None:
    wanted = job()
    wanted = replace(wanted, recipes=(wanted.recipe, wanted.recipe.model_copy(update={"learning_rate": 1e30})))
    with use_device(standin.NAME):
        finished = train(wanted)
    assert finished is not None
    assert [outcome.state for outcome in finished.outcomes] == ["finished", "diverged"]


@pytest.mark.parametrize("augmentation", [None, "jitter"])
@pytest.mark.parametrize("kind", [StackedTraining, SingleTraining])
def test_no_step_waits_for_the_device(kind: type[StackedTraining], augmentation: str | None, standin: ModuleType) -> None:
    with use_device(standin.NAME):
        training = kind(job(1, augmentation=augmentation, ema=0.9 if kind is SingleTraining else None))
        training.step()
        standin.transfers.clear()
        training.step()
        assert standin.transfers.total() == 0


def test_data_too_large_to_stay_are_sent_batch_by_batch(standin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [job(), noise(2)]
    expected = [train(each) for each in wanted]
    with use_device(standin.NAME):
        assert StackedTraining(wanted[0]).job.dataset.splits["train"].x.device.type == standin.NAME
        monkeypatch.setattr(devices, "RESIDENT_BYTES", 100)
        assert StackedTraining(wanted[0]).job.dataset.splits["train"].x.device.type == "cpu"
        for each, own in zip(wanted, expected, strict=True):
            assert_same(train(each), own)
    table = torch.arange(50.0)
    taken = DeviceCopies(table).take(torch.tensor([7, 3], device=standin.NAME))
    assert taken.device.type == standin.NAME
    assert taken.tolist() == [7.0, 3.0]


def test_a_device_without_float64_has_its_samples_prepared_on_the_cpu(
    standin: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = job(1, ema=0.9, augmentation="jitter")
    expected = train(wanted)
    monkeypatch.setattr(devices, "has_float64", lambda device: device.type == "cpu")
    with use_device(standin.NAME):
        training = SingleTraining(wanted)
        assert training._gather_rows(training._order)[0].device.type == "cpu"
        assert training.device.type == standin.NAME
        assert_same(train(wanted), expected)


def test_the_loss_scale_reads_gradients_anywhere(standin: ModuleType) -> None:
    scale, gradients = LossScale(), torch.tensor([[2.0**17, torch.inf]])
    before = scale.factor
    assert not scale.unscale(gradients.to(standin.NAME))
    assert scale.factor == before / 2


def test_a_device_is_that_of_the_innermost_block(standin: ModuleType) -> None:
    with use_device(standin.NAME) as outer:
        with use_device("cpu"):
            assert devices.present_device().type == "cpu"
        with use_device(None) as inner:
            assert inner == outer == torch.device("standin:0")
    with (
        pytest.raises(UserError, match=r"there is no device 'standin:3' here; torch can use cpu.*standin"),
        use_device("standin:3"),
    ):
        pass
