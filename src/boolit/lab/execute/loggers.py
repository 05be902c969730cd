"""Loggers of training: TensorBoard, Weights & Biases, MLflow, CSV files or a function. Stacked runs have a log each."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from boolit.errors import UserError
from boolit.lab.runs import RunConfig
from boolit.lab.training import CohortResult, Training

OnEpoch: TypeAlias = Callable[[RunConfig, int, Mapping[str, float]], object]


class Logger:
    """Logs the epochs of runs.

    Args:
        folder: the results folder. Files go to its folder ``logs``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "logs"
        self._open: dict[str, Any] = {}

    def epoch(self, run: RunConfig, epoch: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a run after an epoch, which counts from 1."""
        if run.key not in self._open:
            self._open[run.key] = self.begin(run)
        self.write(self._open[run.key], epoch, metrics)

    def end(self, run: RunConfig) -> None:
        """End the log of a run."""
        if run.key in self._open:
            self.close(self._open.pop(run.key))

    def begin(self, run: RunConfig) -> Any:
        """Return the open log of a run; what an interrupted training has logged is written again."""
        raise NotImplementedError

    def write(self, log: Any, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write one epoch."""
        raise NotImplementedError

    def close(self, log: Any) -> None:
        """Close an open log."""
        log.close()


class Callback(Logger):
    """Calls a function after every epoch of every run."""

    def __init__(self, on_epoch: OnEpoch) -> None:
        super().__init__(Path())
        self._on_epoch = on_epoch

    def epoch(self, run: RunConfig, epoch: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        self._on_epoch(run, epoch, metrics)


class CsvLogger(Logger):
    """A file ``logs/csv/RUN.csv`` per run with one row per epoch."""

    def begin(self, run: RunConfig) -> Any:  # noqa: D102
        path = self.folder / "csv" / f"{log_name(run)}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", newline="", encoding="utf-8", buffering=1)

    def write(self, log: Any, epoch: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        writer = csv.DictWriter(log, ["epoch", *metrics])
        if log.tell() == 0:
            writer.writeheader()
        writer.writerow({"epoch": epoch, **metrics})


class TensorBoardLogger(Logger):
    """A folder ``logs/tensorboard/RUN`` per run, for ``tensorboard --logdir``."""

    def begin(self, run: RunConfig) -> Any:  # noqa: D102
        from torch.utils.tensorboard import SummaryWriter

        place = self.folder / "tensorboard" / log_name(run)
        for file in place.glob("events.*"):
            file.unlink()
        writer = SummaryWriter(str(place), flush_secs=10)  # type: ignore[no-untyped-call]
        writer.add_text("config", run.model_dump_json())  # type: ignore[no-untyped-call]
        return writer

    def write(self, log: Any, epoch: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        for name, value in metrics.items():
            log.add_scalar(name, value, epoch)


class WandbLogger(Logger):
    """A run of the project that is named as the study; WANDB_MODE=offline keeps it in ``logs/wandb``."""

    def begin(self, run: RunConfig) -> Any:  # noqa: D102
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        names = {"project": run.study, "group": run.activation, "name": log_name(run), "config": run.model_dump(mode="json")}
        return wandb.init(**names, dir=self.folder, reinit="create_new")  # stacked runs are open at the same time

    def write(self, log: Any, epoch: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        log.log(dict(metrics), step=epoch)

    def close(self, log: Any) -> None:  # noqa: D102
        log.finish()


class MlflowLogger(Logger):
    """A run of the experiment that is named as the study, at MLFLOW_TRACKING_URI or else in ``logs/mlflow``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from mlflow import MlflowClient

        if "MLFLOW_TRACKING_URI" not in os.environ:  # recent versions ask for a consent to write files
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or (self.folder / "mlflow").absolute().as_uri())

    def begin(self, run: RunConfig) -> Any:  # noqa: D102
        client, name = self._client, run.study or "boolit"
        experiment = client.get_experiment_by_name(name)
        made = client.create_run(
            client.create_experiment(name) if experiment is None else experiment.experiment_id, run_name=log_name(run)
        )
        for key in ("activation", "seed", "parameters", "key"):
            client.log_param(made.info.run_id, key, getattr(run, key))
        for key, value in run.training.model_dump(exclude_unset=True).items():
            client.log_param(made.info.run_id, f"training.{key}", value)
        return made.info.run_id

    def write(self, log: Any, epoch: int, metrics: Mapping[str, float]) -> None:  # noqa: D102
        for name, value in metrics.items():
            self._client.log_metric(log, name, value, step=epoch)

    def close(self, log: Any) -> None:  # noqa: D102
        self._client.set_terminated(log)


_KINDS: dict[str, tuple[type[Logger], str | None]] = {  # with the package that each needs
    "tensorboard": (TensorBoardLogger, "tensorboard"),
    "wandb": (WandbLogger, "wandb"),
    "mlflow": (MlflowLogger, "mlflow"),
    "csv": (CsvLogger, None),
}


def open_logger(name: str, folder: Path) -> Logger:
    """Return a logger by its name, or raise UserError if it is unknown or its package is not installed."""
    if name not in _KINDS:
        raise UserError(f"--log {name} is not a logger; choose among {', '.join(_KINDS)}")
    kind, package = _KINDS[name]
    try:
        if package:
            import_module(package)
    except ImportError as error:
        raise UserError(f"--log {name} needs the package {package} ({error}): pip install {package}") from error
    return kind(folder)


def log_name(run: RunConfig) -> str:
    """Return the name of a run's log."""
    return f"{run.activation}-{run.parameters}-seed{run.seed}-{run.key}"


class EpochLog:
    """Passes the epochs of a cohort to loggers, those before a resumption first."""

    def __init__(self, loggers: tuple[Logger, ...], runs: tuple[RunConfig, ...]) -> None:
        self._loggers, self._runs, self._logged = loggers, runs, 0

    def after_step(self, training: Training) -> None:
        """Log the epochs that a training has completed since the last call."""
        if not self._loggers or training.at.epoch == self._logged:
            return
        early = training.early_stopping
        for epoch in range(self._logged, training.at.epoch):
            values = {name: curve[epoch].tolist() for name, curve in training.history.items()}
            for place, run in enumerate(self._runs):
                metrics = {name: each[place] for name, each in values.items()}
                stopped = early is not None and epoch >= int(early.trained[place])
                if not stopped and any(value == value for value in metrics.values()):  # all are NaN after a divergence
                    self._log(run, epoch, metrics)
        self._logged = training.at.epoch

    def finish(self, result: CohortResult) -> None:
        """End the logs; epochs that were trained by a worker are logged now."""
        for run, outcome in zip(self._runs, result.outcomes, strict=True):
            for epoch in range(self._logged, max(map(len, outcome.history.values()), default=0)):
                self._log(run, epoch, {name: curve[epoch] for name, curve in outcome.history.items()})
            for logger in self._loggers:
                logger.end(run)

    def _log(self, run: RunConfig, epoch: int, metrics: Mapping[str, float]) -> None:
        for logger in self._loggers:
            logger.epoch(run, epoch + 1, metrics)
