"""From the options to the runs: the data, a plan, trials of learning rates, the runs that are measured, and their duration.

All rates on all splits are one stacked training per activation, a fifth as long as the final one. It never reads test rows,
and the choice on a split depends on no other split, whose validation rows may be test rows of this one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pandas as pd

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key, data_folder
from boolit.lab.compare import CompareConfig
from boolit.lab.datasets.embeddings import encode_photographs, weights_identity
from boolit.lab.datasets.images import files_identity, images_by_class
from boolit.lab.datasets.table import PreparedTable, TableSource
from boolit.lab.runs import RunConfig, job
from boolit.lab.studies import Plan, StudyFile, cohorts, plan
from boolit.lab.training import Training, train
from boolit.lab.training.recipe import METRIC_OF_TASK

ActivationSplit: TypeAlias = tuple[str, int]  # an activation on a split

IMAGE_TARGET = "class"
MIN_BUDGET, BUDGET_PER_FEATURE = 10_000, 50
SAMPLES_SEEN, MAX_EPOCHS, MIN_EPOCHS = 1_500_000, 100, 8
MIN_BATCH, MAX_BATCH = 16, 512
PATIENCE_SHARE, MIN_PATIENCE = 0.15, 5
TRIAL_SHARE, MIN_TRIAL_EPOCHS = 0.2, 2
WEIGHT_DECAY = 1e-4
MIN_LIMITED_EPOCHS = 3
TIMED_STEPS, TIMED_SECONDS = 5, 0.5


def table_source(config: CompareConfig, progress: bool | None = None) -> TableSource:
    """Return the user's table, or the table of the features of the user's images."""
    names = ("target", "task", "test", "validation", "drop", "keep", "groups", "time", "class_weight")
    options = {"path": str(config.path), **{name: getattr(config, name) for name in names}}
    if config.path.is_dir():
        path = _encode_images(config.path, str(config.weights) if config.weights else None, progress)
        options |= {"path": str(path), "target": IMAGE_TARGET, "task": "classify"}
    return TableSource(**options)


def _encode_images(folder: Path, weights: str | None, progress: bool | None) -> Path:
    """Write the features and classes of all images as a Parquet file in the data folder, once."""
    classes = images_by_class(folder)
    files = {"images": [path for paths in classes.values() for path in paths]}
    _, digest = weights_identity(weights)
    cache = data_folder() / "embeddings" / cache_key(f"{digest} {files_identity(files)}")
    table = cache / "table.parquet"
    if not table.is_file():
        features = encode_photographs(cache, files, weights, digest, progress)
        frame = pd.DataFrame(features.float().numpy(), columns=[f"feature {i}" for i in range(features.shape[1])])
        frame[IMAGE_TARGET] = [name for name, paths in classes.items() for _ in paths]
        with atomic_write(table) as part:
            frame.to_parquet(part)
    return table


def make_plan(config: CompareConfig, table: PreparedTable) -> Plan:
    """Plan one run per activation: batch-normalized perceptrons of equal size, stopped early."""
    budget = config.budget or max(MIN_BUDGET, BUDGET_PER_FEATURE * table.x.shape[1])
    tables: dict[str, Any] = {
        "title": f"{config.target or 'Classes'} of {config.path.name}",
        "keep_weights": True,
        "data": table.source.model_dump(mode="json"),
        "model": {"name": "mlp", "normalization": "batch"},
        "sweep": {"activation": list(config.activations), "params": [budget], "depth": [config.layers], "seeds": 1},
        "training": recipe(len(table.resample(1).rows["train"]), config.epochs),
        "metric": {"name": METRIC_OF_TASK[table.task]},
    }
    try:
        return plan(StudyFile(config.name, config.path, tables))
    except UserError as error:
        raise UserError(str(error).replace("sweep.params", f"--budget {budget}")) from None


def recipe(rows: int, epochs: int | None = None) -> dict[str, Any]:
    """Return the recipe for a number of training rows. The batch is about its square root; epochs are fewer for many rows.

    The learning rate follows a cosine down to 0, so that an early stop is not mistaken for the rise of a cycle.
    """
    return {
        "optimizer": "adamw",
        "schedule": "cosine",
        "weight_decay": WEIGHT_DECAY,
        "batch": min(MAX_BATCH, max(MIN_BATCH, 1 << round(rows**0.5).bit_length())),
        **_length(epochs or min(MAX_EPOCHS, max(MIN_EPOCHS, round(SAMPLES_SEEN / rows)))),
    }


def _length(epochs: int) -> dict[str, int]:
    return {"epochs": epochs, "patience": max(MIN_PATIENCE, round(PATIENCE_SHARE * epochs))}


def trial_epochs(epochs: int) -> int:
    """Return the epochs of a run that tries a rate, given those of a run that is measured."""
    return min(epochs, max(MIN_TRIAL_EPOCHS, round(TRIAL_SHARE * epochs)))


def trial_plan(planned: Plan, splits: Sequence[int], rates: Sequence[float]) -> Plan:
    """Plan the runs that try every rate of every activation on every split."""
    options = _length(trial_epochs(planned.study.training.epochs))
    runs = [
        run.replace(stage="rates", trial=True, seed=split, split=split, training=options | {"learning_rate": rate})
        for run in planned.runs
        for split in splits
        for rate in rates
    ]
    return Plan(planned.name, None, planned.study.model_copy(update={"keep_weights": False}), tuple(cohorts(runs)))


def losses(frame: pd.DataFrame) -> pd.Series[float]:
    """Return the validation loss of every run, infinite if it diverged."""
    return frame.reindex(columns=["valid_loss"])["valid_loss"].where(frame["state"] == "finished").fillna(math.inf)


def choose_rates(trials: pd.DataFrame) -> dict[ActivationSplit, float]:
    """Return the rate with the lowest validation loss for every activation and split.

    Of equal losses, and where all diverged, it is the lowest rate.
    """
    ordered = trials.assign(loss=losses(trials)).sort_values(["loss", "learning_rate"])
    return dict(ordered.groupby(["activation", "split"])["learning_rate"].first().to_dict())  # type: ignore[arg-type]


def final_plan(planned: Plan, rates: Mapping[ActivationSplit, float]) -> Plan:
    """Plan the runs that are measured: every activation on every split, at the rate that was chosen there."""
    configs = {run.activation: run for run in planned.runs}
    runs = [
        configs[spec].replace(seed=split, split=split, training={"learning_rate": rate})
        for (spec, split), rate in rates.items()
    ]
    return Plan(planned.name, None, planned.study, tuple(cohorts(runs)))


def seconds_per_epoch(trials: Plan) -> float:
    """Return about how long one epoch of one run of every activation takes, from a few training steps of each.

    Validation, baselines and the report come on top of the steps, but runs that stop early save about as much.
    """
    return sum(_time_epoch(cohort.runs) for cohort in {each.runs[0].activation: each for each in trials.cohorts}.values())


def _time_epoch(runs: Sequence[RunConfig]) -> float:
    work, times = job(runs), [time.monotonic()]

    def watch(training: Training) -> bool:
        training.loss.cpu()  # waits for the device
        times.append(time.monotonic())
        return len(times) <= TIMED_STEPS or times[-1] - times[0] < TIMED_SECONDS

    train(work, callback=watch)
    return median(after - before for before, after in pairwise(times)) * work.steps_per_epoch / work.runs
