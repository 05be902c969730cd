"""A run is trained as a loop of plain torch would train it, whichever runs are beside it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Dataset, Resample, Split
from boolit.lab.training import Job, Outcome, train

MakeJob = Callable[..., Job]
CNN: dict[str, Any] = {
    "data": {"name": "digits"},
    "model": {"name": "cnn"},
    "widths": (4,) * 8,
    "activation": "or_ail",
    "batch": 256,
}


def outcomes(job: Job, **options: Any) -> list[Outcome]:
    result = train(job, **options)
    assert result is not None
    return result


def loop(job: Job, run: int) -> tuple[nn.Module, list[float]]:
    """The same run with torch's optimizer and scheduler."""
    recipe, network = job.recipes[run], job.build(run)
    norms = [v for layer in network.modules() if isinstance(layer, nn.BatchNorm1d) for v in layer.parameters()]
    others = [v for v in network.parameters() if all(v is not norm for norm in norms)]
    decay = recipe.weight_decay
    groups = [{"params": others, "weight_decay": decay}]
    groups += [{"params": norms, "weight_decay": decay if recipe.decay_norm else 0.0}] if norms else []
    rate = float(recipe.learning_rate)
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(groups, rate, momentum=recipe.momentum)
    else:
        kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
        optimizer = kind(groups, rate, betas=(recipe.beta1, recipe.beta2), eps=recipe.eps)
    steps = recipe.epochs * job.steps_per_epoch
    schedulers = torch.optim.lr_scheduler
    scheduler = {
        "constant": lambda: schedulers.ConstantLR(optimizer, 1.0),
        "cosine": lambda: schedulers.CosineAnnealingLR(optimizer, steps),
        "one-cycle": lambda: schedulers.OneCycleLR(optimizer, rate, steps, pct_start=recipe.peak, cycle_momentum=False),
        "triangular": lambda: schedulers.CyclicLR(
            optimizer, 1e-8, rate, int(recipe.peak * steps), steps - int(recipe.peak * steps), cycle_momentum=False
        ),
    }[recipe.schedule]()
    train_split, losses = job.dataset.splits["train"], []
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(train_split), generator=generator(job.seeds[run], "order", epoch))
        total = 0.0
        for step in range(job.steps_per_epoch):
            rows = order[step * job.batch : (step + 1) * job.batch]
            loss = nn.functional.binary_cross_entropy_with_logits(network(train_split.x[rows]), train_split.y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += float(loss.detach())
        losses.append(total / job.steps_per_epoch)
    return network.eval(), losses


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
        {"optimizer": "sgd", "momentum": 0.9, "schedule": "constant", "activation": "prelu"},
        {"schedule": "triangular", "peak": 0.4, "beta1": 0.1, "beta2": 0.5},
        {"model": {"name": "mlp", "normalization": "batch"}, "decay_norm": False, "weight_decay": 0.1},
        {"model": {"name": "mlp", "normalization": "batch"}, "weight_decay": 0.1, "activation": "or_and_ail_d"},
        {"model": {"name": "mlp", "normalization": "layer"}, "precision": "bfloat16", "activation": "identity"},
    ],
)
def test_a_run_equals_a_loop_of_torch(make_job: MakeJob, options: dict[str, Any]) -> None:
    job = make_job(seeds=(3, 4), recipes=[{"learning_rate": 0.003}, {"learning_rate": 0.01}], **options)
    half = job.recipe.precision != "float32"
    for run, outcome in enumerate(outcomes(job, keep_weights=True)):
        network, losses = loop(job, run)
        assert outcome.history["train_loss"] == pytest.approx(losses, rel=0.02 if half else 1e-4)
        assert outcome.weights is not None
        for name, values in network.state_dict().items():
            if name in outcome.weights and not half:
                torch.testing.assert_close(outcome.weights[name], values, rtol=2e-3, atol=2e-4)
        test = job.dataset.splits["test"]
        expected = ((network(test.x) > 0) == (test.y > 0.5)).double().mean()
        assert outcome.metrics["test_accuracy"] == pytest.approx(float(expected), abs=0.1 if half else 0.02)


@pytest.mark.parametrize("options", [{}, CNN], ids=["stacked", "plain"])
def test_a_run_depends_on_its_own_configuration_only(make_job: MakeJob, options: dict[str, Any]) -> None:
    together = outcomes(make_job(seeds=(5, 6, 7), recipes=[{}, {"beta1": 0.5}, {"weight_decay": 0.1}], **options))
    alone = outcomes(make_job(seeds=(6,), recipes=[{"beta1": 0.5}], **options))[0]
    for name, values in alone.history.items():
        assert together[1].history[name] == pytest.approx(values, rel=1e-4)
    assert together[0].history["train_loss"] != together[1].history["train_loss"]


def test_threads_change_nothing(make_job: MakeJob) -> None:
    job = make_job(seeds=(5, 6, 7), **CNN)
    one = outcomes(job)
    torch.set_num_threads(2)
    for first, second in zip(one, outcomes(job), strict=True):
        assert second.history["train_loss"] == pytest.approx(first.history["train_loss"], rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"precision": "float16"}], ids=["stacked", "plain"])
def test_a_diverged_run_has_nan_metrics_and_leaves_the_others_alone(make_job: MakeJob, options: dict[str, Any]) -> None:
    fast, slow = {"learning_rate": 1e30}, {"learning_rate": 0.01}
    options = {"activation": "identity", "optimizer": "sgd", "schedule": "constant", "epochs": 4, "batch": 256} | options
    job = make_job(seeds=tuple(range(12)), recipes=[fast] * 9 + [slow] * 3, **options)
    results = outcomes(job, keep_weights=True)
    assert [outcome.state for outcome in results] == ["diverged"] * 9 + ["finished"] * 3
    assert results[0].metrics["test_loss"] != results[0].metrics["test_loss"]
    assert results[0].metrics["epochs"] < 4
    assert len(results[0].history["test_loss"]) == results[0].metrics["epochs"]
    assert results[0].weights is None
    alone = outcomes(replace(job, recipes=job.recipes[9:], seeds=job.seeds[9:]))
    for outcome, expected in zip(results[9:], alone, strict=True):
        assert outcome.history["test_loss"] == pytest.approx(expected.history["test_loss"], rel=1e-5)


def test_weights_are_copied_only_when_they_are_kept(make_job: MakeJob) -> None:
    job = make_job(seeds=(0, 1))
    assert [outcome.weights for outcome in outcomes(job)] == [None, None]
    weights = outcomes(job, keep_weights=True)[1].weights
    assert weights is not None
    assert {name: values.shape for name, values in weights.items()} == {
        name: values.shape for name, values in job.build(1).state_dict().items()
    }
    assert all(values.untyped_storage().nbytes() == values.nbytes for values in weights.values())


def test_a_trial_never_reads_test_rows(make_job: MakeJob) -> None:
    job = make_job(valid=True)
    spoiled = Split(torch.full((200, 4), torch.nan), torch.full((200, 1), torch.nan))
    job = replace(job, trial=True, dataset=replace(job.dataset, splits={**job.dataset.splits, "test": spoiled}))
    outcome = outcomes(job)[0]
    assert outcome.state == "finished"
    assert not any(name.startswith("test_") for name in outcome.metrics)


def test_a_test_loss_that_is_not_finite_ends_no_run(make_job: MakeJob) -> None:
    job = make_job()
    spoiled = replace(job.dataset.splits["test"], x=torch.full((200, 4), torch.nan))
    job = replace(job, dataset=replace(job.dataset, splits={**job.dataset.splits, "test": spoiled}))
    assert outcomes(job)[0].state == "finished"


def test_the_prelude_comes_before_the_schedule(make_job: MakeJob) -> None:
    still = outcomes(make_job(epochs=2, prelude=1, prelude_rate=0.0, optimizer="sgd", weight_decay=0.0))[0]
    once = outcomes(make_job(epochs=1, optimizer="sgd", weight_decay=0.0))[0]
    assert still.history["test_loss"][1] != still.history["test_loss"][0]
    assert still.history["test_loss"][0] == pytest.approx(
        nn.functional.binary_cross_entropy_with_logits(*_initial(make_job())).item(), rel=1e-5
    )
    assert len(once.history["test_loss"]) == 1


def _initial(job: Job) -> tuple[Tensor, Tensor]:
    test = job.dataset.splits["test"]
    return job.build(0)(test.x), test.y


def test_extra_metrics_see_all_outputs_of_a_split(make_job: MakeJob) -> None:
    def spread(split: str, outputs: Tensor) -> dict[str, Tensor]:
        return {
            "median": outputs.squeeze(2).sort(1).values[:, 100],
            "letters": torch.full(outputs.shape[:1], float(len(split))),
        }

    job = make_job(seeds=(0, 1))
    job = replace(job, dataset=replace(job.dataset, extra_metrics=spread))
    outcome = outcomes(job, keep_weights=True)[1]
    network = job.build(1).eval()
    network.load_state_dict(outcome.weights or {})
    values = network(job.dataset.splits["test"].x).flatten().sort().values
    assert outcome.metrics["test_median"] == pytest.approx(float(values[100].detach()), rel=1e-4, abs=1e-5)
    assert outcome.metrics["test_letters"] == 4


def test_every_run_can_have_its_own_rows(make_job: MakeJob) -> None:
    drawn = torch.Generator().manual_seed(0)
    x, y = 5 + 3 * torch.randn(60, 3, generator=drawn), torch.randn(60, 1, generator=drawn)

    def resample(number: int) -> Resample:
        order = torch.randperm(60, generator=torch.Generator().manual_seed(number))
        rows = {"train": order[:40], "valid": order[40:50], "test": order[50:]}
        kept = x[rows["train"]]
        return Resample(rows, kept.mean(0), kept.std(0), 0.5, 2.0)

    splits = {"train": Split(x[:40], y[:40]), "valid": Split(x[40:50], y[40:50]), "test": Split(x[50:], y[50:])}
    pooled = Dataset(splits, "regression", 1, pool=Split(x, y), resample=resample)
    job = replace(make_job(pooled, widths=(8,), seeds=(3, 4), activation="relu"), resamples=(resample(1), resample(2)))
    for run, outcome in enumerate(outcomes(job)):
        own = resample(run + 1)
        standardized = {name: Split((x[rows] - own.mean) / own.scale, (y[rows] - 0.5) / 2) for name, rows in own.rows.items()}
        alone = make_job(Dataset(standardized, "regression", 1), widths=(8,), seeds=(3 + run,), activation="relu")
        expected = outcomes(alone)[0]
        assert outcome.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"], rel=1e-4)
        assert outcome.metrics["test_rmse"] == pytest.approx(2 * expected.metrics["test_rmse"], rel=1e-4)


@pytest.mark.parametrize("loss", ["bce", "mse"])
def test_losses_of_a_binary_task(make_job: MakeJob, loss: str) -> None:
    job = make_job(loss=loss)
    outcome = outcomes(job, keep_weights=True)[0]
    network = job.build(0)
    network.load_state_dict(outcome.weights or {})
    test = job.dataset.splits["test"]
    function = nn.functional.mse_loss if loss == "mse" else nn.functional.binary_cross_entropy_with_logits
    assert outcome.metrics["test_loss"] == pytest.approx(function(network.eval()(test.x), test.y).item(), rel=1e-4)


def test_augmentation_changes_every_step(make_job: MakeJob) -> None:
    plain, noisy = (outcomes(make_job(augmentation=name))[0].history["train_loss"] for name in (None, "jitter"))
    assert plain != noisy
    assert noisy == outcomes(make_job(augmentation="jitter"))[0].history["train_loss"]
