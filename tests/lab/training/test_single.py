"""A large network trained alone: as the stacked trainer does it, and what each option adds."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, update_bn

from boolit.errors import UserError
from boolit.lab.datasets import load, source
from boolit.lab.models import restore
from boolit.lab.models.unstacked import UnstackedRuns
from boolit.lab.studies import load_study, plan
from boolit.lab.training import Checkpoint, CohortResult, Job, StackedTraining, train
from boolit.lab.training.cohort import Outcome, outcomes
from boolit.lab.training.metrics import evaluate
from boolit.lab.training.recipe import SINGLE_NETWORK_OPTIONS
from boolit.lab.training.single import INTERVAL, LossScale, SingleTraining, check_bfloat16
from boolit.lab.training.weight_average import estimate_statistics

Config = Callable[..., dict[str, Any]]
Double = Callable[[Job], Job]
Agree = Callable[[Job, Outcome, Outcome], None]
PLAIN: dict[str, Any] = {"model": {"name": "mlp"}, "width": [8, 8]}
RICH: dict[str, Any] = {"model": {"name": "mlp", "normalisation": "batch", "dropout": 0.1}, "width": [8, 8]}
DIGITS: dict[str, Any] = {"data": {"name": "digits", "validation": 1000 / 1437}, "model": {"name": "mlp"}, "width": [16]}
PICTURES: dict[str, Any] = DIGITS | {"model": {"name": "cnn"}, "width": [4] * 8}


def trained(training: StackedTraining) -> StackedTraining:
    while not training.done:
        training.step()
    return training


def curve(training: StackedTraining, name: str = "train_loss") -> Tensor:
    return torch.stack(training.history[name]).squeeze(1)


def finished(result: CohortResult | None) -> CohortResult:
    assert result is not None
    return result


@pytest.mark.parametrize("changes", [PLAIN, RICH, DIGITS, PICTURES], ids=["plain", "rich", "digits", "pictures"])
@pytest.mark.parametrize("augmentation", [None, "jitter"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_without_options_the_numbers_are_the_stacked_trainers(
    changes: dict[str, Any], augmentation: str | None, optimiser: str, config: Config, in_double: Double, agree: Agree
) -> None:
    recipe = {"augmentation": augmentation, "optimiser": optimiser, "momentum": 0.9, "epochs": 1}
    job = in_double(Job.of([config(5, **changes, training=recipe)]))
    (alone,), (stacked,) = (outcomes(trained(kind(job))) for kind in (SingleTraining, StackedTraining))
    agree(job, alone, stacked)


@pytest.mark.parametrize("changes", [PLAIN, DIGITS], ids=["plain", "digits"])
def test_micro_batches_add_up_to_the_batch(changes: dict[str, Any], config: Config, in_double: Double, agree: Agree) -> None:
    sizes: dict[int, set[int]] = {}
    found = []
    for n in (1, 4):
        job = in_double(Job.of([config(**changes, training={"accumulate": n, "augmentation": "jitter", "epochs": 1})]))
        training = SingleTraining(job)
        training.model.register_forward_hook(
            lambda model, inputs, _, n=n: sizes.setdefault(n, set()).add(inputs[0].shape[1]) if model.training else None
        )
        found += outcomes(trained(training))
    assert sizes == {1: {32}, 4: {8}}
    agree(job, *found)
    assert found[0].steps == pytest.approx(found[1].steps, rel=1e-6)


def test_micro_batches_drop_different_elements(config: Config) -> None:
    training = SingleTraining(Job.of([config(**RICH, training={"accumulate": 2})]))
    layer, moments = training._dropouts[0], []
    layer.register_forward_pre_hook(lambda *_: moments.append(layer.step))
    training.step()
    training.step()
    assert moments == [0, 1, 2, 3]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("changes", [DIGITS, DIGITS | {"model": RICH["model"]}, PICTURES], ids=["digits", "rich", "pictures"])
def test_half_precision_learns_nearly_as_float32(precision: str, changes: dict[str, Any], config: Config) -> None:
    recipe = {"epochs": 4, "schedule": "constant", "learning_rate": 0.01}
    half, full = (
        SingleTraining(Job.of([config(activation="or_ail", **changes, training=recipe | {"precision": p})]))
        for p in (precision, "float32")
    )
    kinds: dict[bool, torch.dtype] = {}
    half.model.register_forward_hook(lambda model, _, out: kinds.update({model.training: out.dtype}))
    first, last = (float(curve(trained(half))[i]) for i in (0, -1))
    assert kinds == {True: getattr(torch, precision), False: torch.float32}
    assert last < 0.97 * first
    assert last == pytest.approx(float(curve(trained(full))[-1]), rel=0.15)


def test_a_step_that_overflows_is_left_out(config: Config) -> None:
    training = SingleTraining(Job.of([config(training={"precision": "float16", "ema": 0.5})]))
    assert training.scale is not None
    training.scale.state[0] = 2.0**30
    before = training.flat.values.clone()
    training.step()
    assert torch.equal(training.flat.values, before)
    assert training.scale.state.tolist() == [2.0**29, 0]
    while training.scale.state[1] == 0:
        training.step()
    assert not torch.equal(training.flat.values, before)


def test_adam_counts_the_steps_that_were_taken_as_torch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config
) -> None:
    job = Job.of([config(training={"precision": "float16", "schedule": "constant", "epochs": 2, "weight_decay": 0.0})])
    training, unscale = SingleTraining(job), LossScale.unscale
    reference = nn.Parameter(training.flat.values.clone())
    adam = torch.optim.Adam([reference], 0.01)
    left_out, seen = {0, 3, job.steps_per_epoch + 1}, iter(range(10**6))

    def refuse_some(scale: LossScale, gradients: Tensor) -> bool:
        usable = unscale(scale, gradients)
        reference.grad = gradients.clone()
        if usable and (taken := next(seen) not in left_out):
            adam.step()
        return usable and taken

    monkeypatch.setattr(LossScale, "unscale", refuse_some)
    while training.steps < job.steps_per_epoch + 3:
        training.step()
    Checkpoint(tmp_path).save(training, 0.0)
    training = SingleTraining(job)
    Checkpoint(tmp_path).restore(training)
    while not training.done:
        training.step()
    assert int(training.skipped_steps) >= len(left_out)
    torch.testing.assert_close(training.flat.values, reference.detach(), rtol=1e-5, atol=1e-6)


def test_an_error_in_an_evaluation_leaves_the_network_with_its_own_weights(config: Config) -> None:
    training = SingleTraining(Job.of([config(training={"ema": 0.5})]))
    average = training.average
    assert average is not None
    for _ in range(3):
        training.step()
    own, averaged = training.flat.values.clone(), average.averaged.clone()
    with suppress(ZeroDivisionError), average.swap():
        assert torch.equal(training.flat.values, averaged)
        raise ZeroDivisionError
    assert torch.equal(training.flat.values, own)
    assert torch.equal(average.averaged, averaged)


def test_gradients_are_clipped_as_torch_does_it(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    job = Job.of([config(training={"clip": 0.05, "accumulate": 2})])
    training, twin = SingleTraining(job), job.build()
    used: list[Tensor] = []
    monkeypatch.setattr(training.optimiser, "step", lambda gradients, _: used.append(gradients[0].clone()))
    x, y = training._prepare_batch(0)
    training.step()
    nn.functional.binary_cross_entropy_with_logits(twin(x), y).backward()
    assert nn.utils.clip_grad_norm_(twin.parameters(), 0.05) > 0.05
    expected = torch.cat([parameter.grad.flatten(1) for parameter in twin.parameters() if parameter.grad is not None], 1)
    torch.testing.assert_close(used[0], expected)
    assert float(used[0].norm()) == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize("patience", [None, 2])
def test_averaged_weights_are_torchs_and_are_what_is_evaluated_and_kept(patience: int | None, config: Config) -> None:
    own = config(**DIGITS, training={"ema": 0.9, "patience": patience})
    training = SingleTraining(Job.of([own]))
    reference = AveragedModel(training.model, avg_fn=get_ema_avg_fn(0.9))
    kept = []
    while not training.done:
        training.step()
        reference.update_parameters(training.model)
        if training.at.step == 0:
            kept.append({name: values.squeeze(0).clone() for name, values in reference.module.state_dict().items()})
    (outcome,) = outcomes(training)
    best = int(outcome.metrics.get("best_epoch", len(kept))) - 1
    for name, values in outcome.weights.items():
        torch.testing.assert_close(values, kept[best][name])
    again = restore(own.replace(inputs=[8, 8], outputs=10), outcome.weights)
    means = evaluate(training.job, again, load(source(own.data)).splits["test"])
    assert means.flatten().tolist() == pytest.approx([outcome.metrics["test_loss"], outcome.metrics["test_accuracy"]])


def test_the_average_begins_with_the_first_step_that_was_taken(tmp_path: Path, config: Config) -> None:
    job = Job.of([config(training={"precision": "float16", "ema": 0.999})])
    training = SingleTraining(job)
    assert training.scale is not None
    assert training.average is not None
    training.scale.state[0] = 2.0**30
    before = training.flat.values.clone()
    while torch.equal(training.flat.values, before):
        training.step()
    assert training.steps > 1
    assert torch.equal(training.average.averaged, training.flat.values)
    first = training.flat.values.clone()
    Checkpoint(tmp_path).save(training, 0.0)
    resumed = SingleTraining(job)
    Checkpoint(tmp_path).restore(resumed)
    assert resumed.average is not None
    for each in (training, resumed):
        while torch.equal(each.flat.values, first):
            each.step()
    assert torch.equal(resumed.average.averaged, training.average.averaged)
    assert not torch.equal(resumed.average.averaged, resumed.flat.values)


@pytest.mark.parametrize("options", [{}, {"patience": 5}, {"accumulate": 2}], ids=["plain", "patience", "accumulate"])
def test_averaged_weights_have_batch_norm_statistics_of_their_own(options: dict[str, Any], config: Config) -> None:
    # 416 training samples in 13 batches of 32: every one of them is in every epoch.
    data = {"name": "digits", "validation": 1021 / 1437}
    own = config(
        data=data,
        model={"name": "mlp", "normalisation": "batch"},
        width=[16],
        training={"ema": 0.98, "learning_rate": 0.05, **options},
    )
    training = trained(SingleTraining(Job.of([own])))
    (outcome,) = outcomes(training)
    weights, dataset = outcome.weights, training.job.dataset
    assert len(dataset.splits["train"]) == 416
    entering = dataset.encode(dataset.splits["train"].x).flatten(1).double() @ weights["linear.0.weight"].double().T
    entering += weights["linear.0.bias"].double()
    # The mean of all batches' means is the mean of all samples, rounded to float32 on the way.
    torch.testing.assert_close(weights["norm.0.running_mean"].double(), entering.mean(0), rtol=1e-4, atol=1e-4)
    # The mean of the variances within batches lies below that of all samples by what the batches' means differ: by 1 in 31.
    torch.testing.assert_close(weights["norm.0.running_var"].double(), entering.var(0), rtol=0.1, atol=1e-3)
    again = restore(own.replace(inputs=[8, 8], outputs=10), weights)
    means = evaluate(training.job, again, dataset.splits["test"])
    assert means.flatten().tolist() == pytest.approx([outcome.metrics["test_loss"], outcome.metrics["test_accuracy"]])


def test_averaging_does_not_change_the_network_that_is_averaged(config: Config) -> None:
    plain, averaged = (
        trained(SingleTraining(Job.of([config(**RICH, training={"clip": 1.0, **more})]))) for more in ({}, {"ema": 0.9})
    )
    assert torch.equal(averaged.flat.values, plain.flat.values)
    for own, other in zip(averaged.model.buffers(), plain.model.buffers(), strict=True):
        assert torch.equal(own, other)


def test_statistics_are_found_as_torchs_update_bn_finds_them() -> None:
    plain = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.Flatten())
    stacked = UnstackedRuns(1, plain)
    stacked.initialise([7])
    plain.load_state_dict({name: values.squeeze(0) for name, values in stacked.state_dict().items()})
    batches = torch.randn(5, 8, 1, 8, 8, generator=torch.Generator().manual_seed(3))

    with torch.no_grad():
        stacked.train()
        estimate_statistics(stacked, (stacked(x.unsqueeze(0)) for x in batches))
    update_bn(batches, plain)
    for name in ("1.running_mean", "1.running_var", "4.running_mean", "4.running_var"):
        torch.testing.assert_close(stacked.get_buffer(name).squeeze(0), plain.get_buffer(name))


def test_compiled_networks_learn_the_same(monkeypatch: pytest.MonkeyPatch, config: Config, in_double: Double) -> None:
    monkeypatch.setattr("boolit.lab.training.single.COMPILER", "eager")  # its graph, without a minute of code generation
    recipe = {"epochs": 1, "batch": 128}
    jobs = [in_double(Job.of([config(**PICTURES, training=recipe | {"compile": compiled})])) for compiled in (False, True)]
    plain, compiled = (trained(SingleTraining(job)) for job in jobs)
    torch.testing.assert_close(torch.stack(compiled.step_losses), torch.stack(plain.step_losses), rtol=1e-5, atol=1e-5)


EVERYTHING: dict[str, Any] = {
    "accumulate": 2,
    "precision": "float16",
    "clip": 0.5,
    "ema": 0.9,
    "augmentation": "jitter",
    "patience": 1,
    "learning_rate": 0.05,
}


@pytest.mark.parametrize("steps", [1, 6, 13, 14, 27])
def test_a_killed_training_goes_on_with_bitwise_the_same_losses(tmp_path: Path, steps: int, config: Config) -> None:
    job = Job.of([config(3, **DIGITS | {"model": RICH["model"]}, training=EVERYTHING)])
    unbroken = finished(train(job)).outcomes[0]

    def killed(training: StackedTraining) -> bool:
        if training.steps == steps + 1:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        train(job, Checkpoint(tmp_path, every=3600, steps=steps), killed)
    started: list[int] = []

    def watched(training: StackedTraining) -> bool:
        started.append(training.steps)
        return True

    resumed = finished(train(job, Checkpoint(tmp_path), watched)).outcomes[0]
    assert started[0] == steps + 1
    assert resumed.steps == unbroken.steps
    assert resumed.history == unbroken.history
    assert resumed.metrics == unbroken.metrics
    assert all(torch.equal(values, unbroken.weights[name]) for name, values in resumed.weights.items())


def test_epochs_are_the_means_of_their_steps(config: Config) -> None:
    outcome = finished(train(Job.of([config(training={"clip": 1.0, "epochs": 2})]))).outcomes[0]
    halves = torch.tensor(outcome.steps).view(2, -1).mean(1)
    assert halves.tolist() == pytest.approx(outcome.history["train_loss"])


def test_a_checkpoint_of_the_stacked_trainer_can_be_gone_on_from(
    tmp_path: Path, config: Config, in_double: Double, agree: Agree
) -> None:
    job = in_double(Job.of([config(training={"epochs": 1})]))
    assert train(job, Checkpoint(tmp_path), lambda training: training.steps < 5) is None
    alone = SingleTraining(job)
    Checkpoint(tmp_path).restore(alone)
    agree(job, *outcomes(trained(alone)), *outcomes(trained(StackedTraining(job))))


def test_a_batch_that_cannot_be_shared_out_is_refused(monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    with pytest.raises(ValidationError, match="a batch of 32 cannot be cut into 3 equal parts"):
        Job.of([config(training={"accumulate": 3})])
    monkeypatch.setattr("boolit.lab.training.distributed.size", lambda: 3)
    with pytest.raises(UserError, match=r"a batch of 32 samples must be a multiple of accumulate \(2\) × processes \(3\) = 6"):
        SingleTraining(Job.of([config(training={"accumulate": 2})]))


def test_runs_with_such_options_are_planned_and_trained_one_by_one(config: Config) -> None:
    with pytest.raises(ValueError, match="2 runs with options for a single network"):
        train(Job.of([config(seed, training={"clip": 1.0}) for seed in range(2)]))
    small = ["data.train=64", "data.test=32"]
    alone, together = (plan(load_study("parity"), seeds=3, sets=sets) for sets in ([*small, "training.clip=1.0"], small))
    assert {len(cohort.runs) for cohort in alone.cohorts} == {1}
    assert {len(cohort.runs) for cohort in together.cohorts} == {3}


def test_keys_of_runs_without_such_options_do_not_know_of_them() -> None:
    sets = ["data.train=64", "data.test=32"]
    (without, *_), (changed, *_) = (
        plan(load_study("parity"), seeds=1, sets=[*sets, *more]).runs for more in ([], ["training.ema=0.9"])
    )
    assert not set(SINGLE_NETWORK_OPTIONS) & set(without.config.training)
    assert without.key != changed.key


def test_checkpoints_by_steps(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, every=3600, steps=3)
    assert [checkpoint.due_after(steps) for steps in (1, 3, 4, 6)] == [False, True, False, True]
    assert not Checkpoint(tmp_path, every=3600).due_after(3)


def test_costly_checkpoints_are_written_more_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config) -> None:
    times = iter([0.0, 0.0, 2.0, 39.0, 41.0, 43.0])
    monkeypatch.setattr("boolit.lab.training.checkpoint.time.monotonic", lambda: next(times))
    checkpoint = Checkpoint(tmp_path, every=1)
    checkpoint.save(StackedTraining(Job.of([config()])), 0.0)
    assert [checkpoint.due_after(1) for _ in range(3)] == [False, False, True]


def test_bfloat16_that_the_machine_only_announces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boolit.lab.training.single.TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    with pytest.raises(UserError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16, or use 'float16'"):
        check_bfloat16.__wrapped__()


def test_the_loss_scale_doubles_after_its_interval_and_halves_at_an_overflow() -> None:
    scale, gradient = LossScale(), torch.ones(1)
    first = scale.factor
    for _ in range(INTERVAL - 1):
        assert scale.unscale(gradient.fill_(first))
    assert (scale.factor, gradient.item()) == (first, 1.0)
    assert scale.unscale(gradient)
    assert scale.factor == 2 * first
    assert not scale.unscale(torch.tensor([torch.inf]))
    assert scale.factor == first
