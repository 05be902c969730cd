"""Loggers of training: TensorBoard, Weights & Biases, MLflow, CSV files or a function. Stacked runs have a log each.

A logger is a function that opens the log of a run. What an interrupted training has logged is written again.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from boolit.errors import UserError
from boolit.lab.runs import RunConfig
from boolit.lab.training import Outcome, Training

OnEpoch: TypeAlias = Callable[[RunConfig, int, Mapping[str, float]], object]


class Log(NamedTuple):
    """The open log of a run: ``write`` takes an epoch, counted from 1, and its metrics."""

    write: Callable[[int, Mapping[str, float]], object]
    close: Callable[[], object]


Logger: TypeAlias = Callable[[RunConfig], Log]


def open_logger(name: str, folder: Path) -> Logger:
    """Return a logger that writes to ``logs`` in a results folder, or raise UserError if its package is not installed."""
    kinds: dict[str, Callable[[Path, RunConfig], Log]] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
    kinds["csv"] = _csv
    if name not in kinds:
        raise UserError(f"--log {name} is not a logger; choose among {', '.join(kinds)}")
    try:
        import_module(name)  # each is named as its package, and csv is in Python
    except ImportError as error:
        raise UserError(f"--log {name} needs the package {name} ({error}): pip install {name}") from error
    return partial(kinds[name], folder / "logs")


def call_logger(on_epoch: OnEpoch) -> Logger:
    """Return a logger that calls a function."""
    return lambda run: Log(partial(on_epoch, run), lambda: None)


def _name(run: RunConfig) -> str:
    return f"{run.activation}-{run.parameters}-seed{run.seed}-{run.key}"


def _csv(folder: Path, run: RunConfig) -> Log:
    path = folder / "csv" / f"{_name(run)}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w", newline="", encoding="utf-8", buffering=1)

    def write(epoch: int, metrics: Mapping[str, float]) -> None:
        writer = csv.DictWriter(file, ["epoch", *metrics])
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow({"epoch": epoch, **metrics})

    return Log(write, file.close)


def _tensorboard(folder: Path, run: RunConfig) -> Log:
    from torch.utils.tensorboard import SummaryWriter

    place = folder / "tensorboard" / _name(run)
    for file in place.glob("events.*"):
        file.unlink()
    writer: Any = SummaryWriter(str(place), flush_secs=10)
    writer.add_text("config", run.model_dump_json())

    def write(epoch: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, epoch)

    return Log(write, writer.close)


def _wandb(folder: Path, run: RunConfig) -> Log:
    """Open a run of the project that is named as the study; WANDB_MODE=offline keeps it in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"project": run.study, "group": run.activation, "name": _name(run), "config": run.model_dump(mode="json")}
    log = import_module("wandb").init(**names, dir=folder, reinit="create_new")  # stacked runs are open at the same time
    return Log(lambda epoch, metrics: log.log(dict(metrics), step=epoch), log.finish)


def _mlflow(folder: Path, run: RunConfig) -> Log:
    """Open a run of the experiment that is named as the study, at MLFLOW_TRACKING_URI or else in the folder."""
    if "MLFLOW_TRACKING_URI" not in os.environ:  # recent versions ask for a consent to write files
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    place = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").absolute().as_uri()
    client = import_module("mlflow").MlflowClient(place)
    experiment = client.get_experiment_by_name(run.study)
    number = client.create_experiment(run.study) if experiment is None else experiment.experiment_id
    key = client.create_run(number, run_name=_name(run)).info.run_id
    settings = {name: getattr(run, name) for name in ("activation", "seed", "parameters", "key")}
    settings |= {f"training.{name}": value for name, value in run.training.model_dump(exclude_unset=True).items()}
    for name, value in settings.items():
        client.log_param(key, name, value)

    def write(epoch: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            client.log_metric(key, name, value, step=epoch)

    return Log(write, lambda: client.set_terminated(key))


class EpochLog:
    """Passes the epochs of runs to loggers, each epoch once."""

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._loggers, self._logged = loggers, Counter[str]()
        self._open: dict[str, list[Log]] = {}

    def after_step(self, runs: Sequence[RunConfig], training: Training) -> None:
        """Log the epochs that a training has completed, without those after a run has stopped or diverged."""
        if training.at.step:
            return
        trained = training.trained.clamp(max=training.at.epoch).tolist()
        for place, (run, epochs) in enumerate(zip(runs, trained, strict=True)):

            def metrics(epoch: int, place: int = place) -> dict[str, float]:
                return {name: float(values[epoch][place]) for name, values in training.history.items()}

            self._log(run, epochs, metrics)

    def finish(self, runs: Sequence[RunConfig], outcomes: Sequence[Outcome]) -> None:
        """Log what a worker has trained, and close the logs of runs."""
        for run, outcome in zip(runs, outcomes, strict=True):

            def metrics(epoch: int, history: Mapping[str, Sequence[float]] = outcome.history) -> dict[str, float]:
                return {name: values[epoch] for name, values in history.items()}

            self._log(run, int(outcome.metrics["epochs"]), metrics)
            for log in self._open.pop(run.key, ()):
                log.close()

    def _log(self, run: RunConfig, epochs: int, metrics: Callable[[int], dict[str, float]]) -> None:
        for epoch in range(self._logged[run.key], epochs):
            if run.key not in self._open:
                self._open[run.key] = [logger(run) for logger in self._loggers]
            for log in self._open[run.key]:
                log.write(epoch + 1, metrics(epoch))
        self._logged[run.key] = epochs
