"""What a dataset adds to a training: values its networks begin with, and metrics of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.datasets import Split
from boolit.lab.runs import RunConfig
from boolit.lab.training import Checkpoint, Job, Outcome, train
from boolit.lab.training.metrics import predict
from boolit.lab.training.stacked import StackedTraining

Config = Callable[..., dict[str, Any]]
MODEL = {"name": "mlp", "normalisation": "batch"}
EPOCHS = 30
TRAINING: dict[str, Any] = {"epochs": EPOCHS, "schedule": "constant", "learning_rate": 0.05}
PATIENCE = 3


def drawn_split(samples: int) -> Split:
    drawn = generator(0, "valid")
    return Split(torch.randn(samples, 4, generator=drawn), torch.randint(2, (samples, 1), generator=drawn).float())


VALID = drawn_split(64)


def spread(split: str, outputs: Tensor) -> Mapping[str, Tensor]:
    """Figures that take all samples of a split to compute, and differ from split to split."""
    ranked = outputs.squeeze(2).sort(1).values
    middle = ranked[:, ranked.shape[1] // 2]
    return {"median": middle, "size": torch.full_like(middle, float(outputs.shape[1] + len(split)))}


def job(config: Config, seeds: range, extra_metrics: Any = spread, **training: Any) -> Job:
    made = Job.of([config(seed, model=MODEL, width=[16], training=TRAINING | training) for seed in seeds])
    splits = {**made.dataset.splits, "valid": VALID}
    return replace(made, dataset=replace(made.dataset, splits=splits, extra_metrics=extra_metrics))


def trained(wanted: Job) -> list[Outcome]:
    finished = train(wanted)
    assert finished is not None
    return finished.outcomes


def test_extra_metrics_see_all_outputs_of_a_split_after_every_epoch(config: Config) -> None:
    wanted = job(config, range(3), epochs=2)
    training = StackedTraining(wanted)
    while not training.done:
        training.step()
    outputs = torch.cat([piece for _, piece in predict(wanted, training.model, VALID.x)], 1)
    assert torch.equal(training.history["valid_median"][-1], spread("valid", outputs)["median"].double())
    assert [values.tolist() for values in training.history["test_size"]] == [[204.0] * 3] * 2
    assert "train_median" not in training.history


def test_pieces_of_a_split_are_evaluated_together(
    config: Config, monkeypatch: pytest.MonkeyPatch, in_double: Callable[[Job], Job], agree: Callable[..., None]
) -> None:
    wanted = in_double(job(config, range(2), epochs=2))
    whole = trained(wanted)
    monkeypatch.setattr("boolit.lab.training.metrics.EVALUATION_NUMEL", 2 * 16 * 7)
    for one, other in zip(whole, trained(wanted), strict=True):
        agree(wanted, one, other)


def test_a_training_without_extra_metrics_is_the_same_and_keeps_no_outputs(config: Config) -> None:
    with_extra, plain = trained(job(config, range(2), epochs=2)), trained(job(config, range(2), None, epochs=2))
    for one, other in zip(with_extra, plain, strict=True):
        assert other.metrics.items() <= one.metrics.items()
        assert all(torch.equal(values, other.weights[name]) for name, values in one.weights.items())
    assert StackedTraining(job(config, range(2), None))._output_buffer(VALID) is None


def test_a_run_stops_when_an_extra_metric_ceases_to_rise(config: Config) -> None:
    ended = set()
    for outcome in trained(job(config, range(4), patience=PATIENCE, patience_on="median")):
        medians = outcome.history["valid_median"]
        best = max(range(len(medians)), key=medians.__getitem__)
        assert len(medians) == min(best + 1 + PATIENCE, EPOCHS)
        assert outcome.metrics["best_epoch"] == best + 1
        assert outcome.metrics["test_median"] == outcome.history["test_median"][best]
        ended.add(len(medians))
    assert min(ended) < EPOCHS


def test_accuracy_rises_and_loss_falls(config: Config) -> None:
    for outcome in trained(job(config, range(2), patience=PATIENCE, patience_on="accuracy")):
        curve = outcome.history["valid_accuracy"]
        assert outcome.metrics["valid_accuracy"] == max(curve)
    for outcome in trained(job(config, range(2), patience=PATIENCE)):
        assert outcome.metrics["valid_loss"] == min(outcome.history["valid_loss"])


def test_a_metric_that_is_not_there_is_named(config: Config) -> None:
    with pytest.raises(UserError, match="patience_on is 'auc'; the split valid has loss, accuracy, median, size"):
        trained(job(config, range(1), patience=PATIENCE, patience_on="auc"))


@pytest.mark.parametrize("steps", [3, 9, 20])
def test_a_checkpoint_holds_the_extra_metrics(tmp_path: Path, steps: int, config: Config) -> None:
    wanted = job(config, range(3), patience=PATIENCE, patience_on="median")
    assert train(wanted, Checkpoint(tmp_path), lambda training: training.steps < steps) is None
    resumed = train(wanted, Checkpoint(tmp_path))
    assert resumed is not None
    for ours, theirs in zip(resumed.outcomes, trained(wanted), strict=True):
        assert ours.metrics == theirs.metrics
        assert ours.history == theirs.history


def test_what_a_network_begins_with_reaches_every_run(config: Config) -> None:
    made = job(config, range(3))
    given = {"linear.0.weight": torch.arange(64.0).view(16, 4), "norm.0.running_mean": torch.arange(16.0)}
    model = replace(made, dataset=replace(made.dataset, initial_values=given)).build()
    untouched = made.build()
    for name, values in model.state_dict().items():
        assert torch.equal(values, given[name].expand_as(values) if name in given else untouched.state_dict()[name])


@pytest.mark.parametrize(
    ("name", "shape", "rule"),
    [
        ("words.weight", (16, 4), r"values for 'words.weight', not known to a network that has .*linear.0.weight"),
        ("linear.0.weight", (4, 16), r"'linear.0.weight' has the shape \(4, 16\), but the model's is \(16, 4\)"),
        ("linear.0.weight", (3, 16, 4), r"the shape \(3, 16, 4\), but the model's is \(16, 4\)"),
    ],
)
def test_what_does_not_fit_the_network_is_refused(name: str, shape: tuple[int, ...], rule: str, config: Config) -> None:
    made = job(config, range(3))
    wrong = replace(made, dataset=replace(made.dataset, initial_values={name: torch.zeros(shape)}))
    with pytest.raises(UserError, match=rule):
        wrong.build()


def test_an_option_set_to_its_default_leaves_a_runs_key(config: Config) -> None:
    recipe = job(config, range(1), patience=PATIENCE).recipe
    assert "patience_on" not in RunConfig.options(recipe)
    assert RunConfig.options(recipe.model_copy(update={"patience_on": "auc"}))["patience_on"] == "auc"


def test_pairs_are_learnt_in_half_precision_as_well() -> None:
    data = {"name": "composed", "attributes": 3, "objects": 4, "listed": 0.9, "samples": 100, "features": 6, "negatives": 3}
    model = {"name": "tmn", "attributes": 3, "objects": 4, "vectors": 16, "modules": 3, "embedding": 4}
    recipe = {"epochs": 4, "batch": 16, "learning_rate": 0.01}
    base = RunConfig(data=data, model=model, width=[8], activation="or_ail", seed=0, training=recipe)
    (whole,), (half,) = (trained(Job.of([base.replace(training=more)])) for more in ({}, {"precision": "bfloat16"}))
    assert half.history["train_loss"][0] > half.metrics["train_loss"] == pytest.approx(whole.metrics["train_loss"], abs=0.1)
    assert {values.dtype for name, values in half.weights.items() if "running" in name} == {torch.float32}
