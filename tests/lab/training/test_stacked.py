"""A run does not notice who shares its cohort; alone, and in a plain torch loop, it is the same but for rounding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import boolit
from boolit.lab.common.random import generator
from boolit.lab.datasets import Split
from boolit.lab.runs import RunConfig
from boolit.lab.training import Job, StackedTraining
from boolit.lab.training.cohort import Outcome, outcomes

Config = Callable[..., dict[str, Any]]
Double = Callable[[Job], Job]
Agree = Callable[[Job, Outcome, Outcome], None]


def trained(configs: Sequence[RunConfig] | Job) -> list[Outcome]:
    training = StackedTraining(configs if isinstance(configs, Job) else Job.of(configs))
    while not training.done:
        training.step()
    return outcomes(training)


def same(one: Outcome, other: Outcome) -> bool:
    weights = all(torch.equal(value, other.weights[name]) for name, value in one.weights.items())
    return weights and one.metrics == other.metrics and one.history == other.history and one.state == other.state


@pytest.mark.parametrize("activation", ["relu", "xnor_ail", "or_il", "prelu", "or_and_xnor_nail_d"])
def test_a_run_is_bitwise_the_same_whoever_shares_its_cohort(activation: str, config: Config) -> None:
    kept = (0, 17, 39)
    cohort = trained([config(seed, activation) for seed in range(40)])
    changed = {"learning_rate": 0.3}
    others = (
        config(seed, activation) if seed in kept else config(100 + seed, activation, training=changed) for seed in range(40)
    )
    with_others = trained(list(others))
    assert all(same(cohort[seed], with_others[seed]) == (seed in kept) for seed in range(40))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("activation", ["relu", "xnor_ail", "or_il", "prelu", "or_and_xnor_nail_d"])
def test_alone_it_differs_by_rounding_only(
    activation: str, threads: int, config: Config, in_double: Double, agree: Agree
) -> None:
    torch.set_num_threads(threads)
    configs = [config(seed, activation, training={"epochs": 1}) for seed in range(40)]
    cohort, alone = trained(in_double(Job.of(configs))), in_double(Job.of(configs[17:18]))
    agree(alone, cohort[17], trained(alone)[0])
    with pytest.raises(AssertionError):
        agree(alone, cohort[16], trained(alone)[0])


@pytest.mark.parametrize("model", [{"normalisation": "batch"}, {"normalisation": "layer"}, {"dropout": 0.2}])
def test_normalisation_and_dropout_do_not_mix_runs(
    model: dict[str, Any], config: Config, in_double: Double, agree: Agree
) -> None:
    def job(seeds: Sequence[int]) -> Job:
        changes = {"model": {"name": "mlp", **model}, "width": [16, 16], "training": {"augmentation": "jitter", "epochs": 1}}
        return in_double(Job.of([config(seed, **changes) for seed in seeds]))

    cohort, with_others = trained(job(range(5))), trained(job((9, 8, 7, 3, 6)))
    assert same(cohort[3], with_others[3])
    agree(job([3]), cohort[3], trained(job([3]))[0])


def test_a_large_run_differs_by_rounding_only(config: Config, in_double: Double, agree: Agree) -> None:
    # One big matrix product alone is split over the threads by MKL, several are not: the sums are then taken in another order.
    changes = {
        "data": {"name": "parity", "train": 2048, "test": 256, "inputs": 12},
        "model": {"name": "mlp", "normalisation": "batch"},
        "width": [128, 128],
        "training": {"epochs": 1, "batch": 512},
    }
    torch.set_num_threads(2)
    cohort = trained(in_double(Job.of([config(seed, **changes) for seed in range(4)])))
    alone = in_double(Job.of([config(2, **changes)]))
    agree(alone, cohort[2], trained(alone)[0])


def test_the_number_of_threads_changes_rounding_only(config: Config, in_double: Double, agree: Agree) -> None:
    model = {"name": "mlp", "normalisation": "batch"}
    job = in_double(Job.of([config(seed, model=model, width=[64, 64], training={"epochs": 1}) for seed in range(3)]))
    one = trained(job)
    torch.set_num_threads(2)
    for ours, theirs in zip(trained(job), one, strict=True):
        agree(job, ours, theirs)


def test_hyper_parameters_belong_to_their_run(config: Config) -> None:
    settings = [{"learning_rate": 0.03, "beta1": 0.5}, {"eps": 1e-4, "peak": 0.5}, {"weight_decay": 0.1, "beta2": 0.9}]
    cohort = trained([config(1, training=own) for own in settings])
    for i, own in enumerate(settings):
        others = trained([config(1, training=own if place == i else {"learning_rate": 0.2}) for place in range(3)])
        assert [same(ours, theirs) for ours, theirs in zip(cohort, others, strict=True)] == [place == i for place in range(3)]


def torch_loop(own: RunConfig, job: Job, model: nn.Module) -> nn.Module:
    """The same training written the usual way."""
    recipe = own.training
    train = job.dataset.splits["train"]
    steps = recipe["epochs"] * job.steps_per_epoch
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe["learning_rate"], weight_decay=recipe["weight_decay"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe["learning_rate"], steps, cycle_momentum=False)
    for epoch in range(recipe["epochs"]):
        order = torch.randperm(len(train), generator=generator(own.seed, "order", epoch))
        for rows in order[: job.steps_per_epoch * job.batch].split(job.batch):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(train.x[rows]), train.y[rows]).backward()
            optimiser.step()
            schedule.step() if schedule.last_epoch < steps - 1 else None
    return model


@pytest.mark.parametrize("activation", ["relu", "xnor_ail"])
def test_a_run_is_what_a_plain_torch_loop_gives(activation: str, config: Config, in_double: Double) -> None:
    own = config(5, activation, training={"epochs": 2})
    job = in_double(Job.of([own]))
    first = job.build().state_dict()
    network = nn.Sequential(
        nn.Linear(4, 4),
        boolit.activation(activation),
        nn.Linear(4 if activation == "relu" else 2, 2),
        boolit.activation(activation),
        nn.Linear(2 if activation == "relu" else 1, 1),
    )
    for layer, place in ((0, 0), (1, 2), (2, 4)):
        network[place].load_state_dict({name: first[f"linear.{layer}.{name}"][0] for name in ("weight", "bias")})
    theirs, ours = torch_loop(own, job, network), trained(job)[0]
    for layer, place in ((0, 0), (1, 2), (2, 4)):
        for name, value in theirs[place].state_dict().items():  # type: ignore[index]
            torch.testing.assert_close(ours.weights[f"linear.{layer}.{name}"], value, rtol=1e-6, atol=1e-6)  # see rounding()
    test = job.dataset.splits["test"]
    right = float(((theirs(test.x) > 0) == (test.y > 0.5)).float().mean())
    assert ours.metrics["test_accuracy"] == pytest.approx(right, abs=1e-6)


def test_metrics_are_kept_for_every_epoch_and_split(config: Config) -> None:
    outcome = trained([config(0, training={"epochs": 4})])[0]
    assert set(outcome.history) == {"train_loss", "train_accuracy", "test_loss", "test_accuracy"}
    assert all(len(values) == 4 for values in outcome.history.values())
    assert outcome.metrics["test_loss"] == outcome.history["test_loss"][-1]
    assert outcome.metrics["parameters"] == sum(value.numel() for value in outcome.weights.values())
    assert 0 <= outcome.metrics["patterns"] <= 16


def test_regression_has_an_rmse(config: Config) -> None:
    changes = {"data": {"name": "parity8", "train": 256, "test": 64}, "width": [8]}
    outcome = trained([config(0, **changes)])[0]
    assert outcome.metrics["test_rmse"] == pytest.approx(outcome.metrics["test_loss"] ** 0.5)


def test_learning_happens(config: Config) -> None:
    recipe = {"epochs": 30, "learning_rate": 0.1}
    history = trained([config(0, "xnor_nail", data={"name": "xor"}, width=[4], training=recipe)])[0].history
    assert history["test_loss"][-1] < history["test_loss"][0] / 2


@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
def test_a_diverging_run_is_told_and_leaves_the_others_alone(optimiser: str, config: Config) -> None:
    sound, mad = {"optimiser": optimiser}, {"optimiser": optimiser, "learning_rate": 1e30}
    changes = {"model": {"name": "mlp", "normalisation": "layer"}, "width": [8, 8], "data": {"name": "parity8", "train": 256}}
    cohort, of_sound = (
        trained([config(seed, "relu", training=mad if seed == ill else sound, **changes) for seed in range(3)])
        for ill in (1, 9)
    )
    assert [outcome.state for outcome in cohort] == ["finished", "diverged", "finished"]
    assert all(same(cohort[i], of_sound[i]) for i in (0, 2))
    assert cohort[1].metrics["test_rmse"] != cohort[1].metrics["test_rmse"]
    assert all(len(values) == cohort[1].metrics["epochs"] for values in cohort[1].history.values())
    assert all(bool(value.isfinite().all()) for value in cohort[1].weights.values())


def test_test_rows_do_not_end_a_run(config: Config) -> None:
    job = Job.of([config(0, "relu")])
    test = job.dataset.splits["test"]
    broken = replace(job.dataset, splits=job.dataset.splits | {"test": Split(test.x * torch.inf, test.y)})
    own, other = (trained(each)[0] for each in (job, replace(job, dataset=broken)))
    assert other.metrics["epochs"] == own.metrics["epochs"] == 3
    assert all(torch.equal(values, own.weights[name]) for name, values in other.weights.items())
    assert other.metrics["train_loss"] == own.metrics["train_loss"]
    assert not math.isfinite(other.metrics["test_loss"])


def test_a_cohort_of_diverged_runs_ends_early(config: Config) -> None:
    mad = {"optimiser": "sgd", "learning_rate": 1e30, "epochs": 50}
    training = StackedTraining(Job.of([config(0, "relu", training=mad, data={"name": "parity8", "train": 64}, width=[8])]))
    while not training.done:
        training.step()
    assert training.at.epoch < 5


def test_a_batch_larger_than_the_data_is_all_of_it(config: Config) -> None:
    job = Job.of([config(training={"batch": 10_000})])
    assert (job.batch, job.steps_per_epoch) == (256, 1)


def test_runs_of_different_recipes_do_not_make_a_job(config: Config) -> None:
    with pytest.raises(ValueError, match="must share their recipe"):
        Job.of([config(), config(training={"batch": 64})])


def test_memory_grows_with_the_network_and_the_batch(config: Config) -> None:
    small, wide, long = (
        Job.of([config(**change)]).bytes_per_run() for change in ({}, {"width": [400, 400]}, {"training": {"batch": 256}})
    )
    assert small < long < wide
