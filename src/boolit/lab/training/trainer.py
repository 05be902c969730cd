"""The trainer: a job's runs, one step at a time, resumable between any two steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from boolit.lab.common.devices import preparation_device, present_device
from boolit.lab.datasets.base import Task
from boolit.lab.models.base import SeededDropout
from boolit.lab.training import distributed
from boolit.lab.training.job import Batches, Job
from boolit.lab.training.optimizers import StackedOptimizer
from boolit.lab.training.recipe import METRIC_OF_TASK, OPTIMIZERS, SCHEDULES

EVALUATION_NUMEL = 2**22  # of the widest layer of all runs; bounds the memory of an evaluation
SHRINK_AT = 0.75  # a stack is rebuilt when at most this share of its runs still learns
MIN_STACK = 8  # a smaller stack is hardly faster
NEVER = -1  # the best epoch of a run that had none
OF_RUNS = ("active", "alive", "trained", "best_epoch", "best_value")  # attributes that a checkpoint keeps, on the CPU
OF_EPOCH = ("loss_sum", "score_sum")  # and those of the current epoch, on the device


def scores(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return what the task's metric averages: hits for accuracy, squared errors for RMSE. Arguments as those of a loss."""
    if task == "regression":
        return (outputs - targets).square()
    if task == "binary":
        return (outputs > 0) == (targets > 0.5)
    return outputs.mT.max(1).indices == targets  # argmax is seven times slower


def mean_of_run(values: Tensor) -> Tensor:
    """Return the mean of ``(runs, …)`` over everything but the runs."""
    return values.flatten(1).mean(1, dtype=torch.float32 if values.dtype == torch.bool else None)


def tensors_under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with ``prefix``, with the prefix removed from the names."""
    return {name.removeprefix(prefix): values for name, values in state.items() if name.startswith(prefix)}


class Position(NamedTuple):
    """How far a training is: complete epochs, and steps of the current one."""

    epoch: int = 0
    step: int = 0


class Training(ABC):
    """The training of a job's runs. Each run's numbers depend on its own seed and hyper-parameters only.

    A run has diverged if its parameters or its loss on ``train`` or ``valid`` are not finite at the end of an epoch. Steps
    compute on the present device. Early stopping and divergence are decided on the CPU once per epoch, so that no step has to
    wait for the device.

    Args:
        job: the runs.
        keep_weights: whether `weights` will be read. Early stopping then keeps the weights of the best epoch.

    Attributes:
        at: epoch and step reached so far.
        active: numbers of the runs that are still training, in the order in which tensors stack them.
        loss: mean loss of the last step of the active runs.
        alive: runs that have not diverged, as a mask.
        trained: number of epochs of every run that has diverged or stopped early; ``epochs`` of the recipe for the others.
        best_epoch: epoch at which the value of early stopping, ``best_value``, was lowest; `NEVER` if it was never finite.
        history: values of every metric, one tensor ``(runs,)`` per epoch.
    """

    def __init__(self, job: Job, keep_weights: bool = False) -> None:
        self.at, self.device = Position(), present_device()
        self.prepared_on = preparation_device(self.device)
        self.job = job = job.on(self.prepared_on)
        self.hyper = job.hyper()
        self.active = torch.arange(job.runs)
        self.history: dict[str, list[Tensor]] = {}
        self.alive = torch.ones(job.runs, dtype=torch.bool)
        self.trained = torch.full((job.runs,), job.recipe.epochs)
        self.best_epoch = torch.full((job.runs,), NEVER)
        self.best_value = torch.full((job.runs,), torch.inf, dtype=torch.float64)
        self.keeps_best = job.recipe.patience is not None and (keep_weights or bool(job.dataset.probes))
        self._batches = Batches(job, self.prepared_on, self.device)
        self.loss = torch.zeros(job.runs, device=self.device)
        self._reset_sums()

    @property
    def learning(self) -> Tensor:
        """Runs that have neither diverged nor stopped early, as a mask."""
        return self.trained == self.job.recipe.epochs

    @property
    def done(self) -> bool:
        """Whether the training has ended."""
        return self.at.epoch >= self.job.recipe.epochs or (self.at.step == 0 and not bool(self.learning.any()))

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self.at.epoch * self.job.steps_per_epoch + self.at.step

    def step(self) -> None:
        """Train one batch of every active run, and evaluate after the last one of an epoch."""
        self._update(*self._batches.take(*self.at))
        self.at = Position(self.at.epoch, self.at.step + 1)
        if self.at.step == self.job.steps_per_epoch:
            self._end_epoch()
            self.at = Position(self.at.epoch + 1)
            if not self.done:
                self._shrink()
                self.begin_epoch()

    def begin_epoch(self) -> None:
        """Prepare the order of the samples and the learning rates of an epoch."""
        epoch, recipe, steps = self.at.epoch, self.job.recipe, self.job.steps_per_epoch
        self._batches.begin_epoch(epoch, self.active)
        rates = torch.full((steps, self.job.runs), recipe.prelude_rate, dtype=torch.float64)
        if epoch >= recipe.prelude:
            first, total = ((number - recipe.prelude) * steps for number in (epoch, recipe.epochs))
            numbers = torch.arange(first, first + steps, dtype=torch.float64).unsqueeze(1)
            schedule, hyper = SCHEDULES.get(recipe.schedule), self.hyper
            rates = schedule(numbers, total, hyper["learning_rate"], hyper["peak"]).double().expand_as(rates)
        self._set_rates(rates[:, self.active].where(self.learning[self.active], 0))

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs of the active runs on stored samples, ``(runs, samples, outputs)`` on the CPU."""
        return torch.cat([self._forward(inputs).cpu() for _, inputs in self._shared_pieces(x)], 1)

    def state(self) -> dict[str, Tensor]:
        """Return everything that a training resumes from."""
        tensors = {name: getattr(self, name) for name in (*OF_RUNS, *OF_EPOCH)}
        history = {f"history.{name}": torch.stack(values) for name, values in self.history.items()}
        return {"at": torch.tensor(self.at), "learning_rate": self.hyper["learning_rate"]} | tensors | history

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state. Raises KeyError, ValueError or RuntimeError if it does not fit the job."""
        self.at = Position(*state["at"].tolist())
        self.hyper["learning_rate"] = state["learning_rate"]
        for name in OF_RUNS:
            setattr(self, name, state[name])
        for name in OF_EPOCH:
            setattr(self, name, state[name].to(self.device))
        self.history = {name: list(values) for name, values in tensors_under(state, "history.").items()}

    @abstractmethod
    def weights(self, run: int) -> dict[str, Tensor]:
        """Return a run's parameters and buffers, those of its best epoch after `finish`."""

    @abstractmethod
    def finish(self) -> None:
        """Restore the weights of every run's best epoch, if they were kept."""

    @abstractmethod
    def _update(self, x: Tensor, y: Tensor) -> None:
        """Train one batch; set ``loss`` and add to ``loss_sum`` and ``score_sum``."""

    @abstractmethod
    def _forward(self, x: Tensor) -> Tensor:
        """Evaluate samples ``(runs, samples, …)`` of the active runs."""

    @abstractmethod
    def _set_rates(self, rates: Tensor) -> None: ...

    @abstractmethod
    def _finite(self) -> Tensor:
        """Return which active runs have finite parameters, as a mask."""

    @abstractmethod
    def _save_best(self, better: Tensor) -> None:
        """Keep the weights of the runs in a mask ``(runs,)``, all of them active."""

    @abstractmethod
    def _shrink(self) -> None:
        """Leave runs out that no longer learn, if that saves time."""

    def _keep_active(self, kept: Tensor) -> None:
        self.active, self.loss = self.active[kept], self.loss[kept.to(self.device)]
        self._reset_sums()

    def _reset_sums(self) -> None:
        self.loss_sum, self.score_sum = (torch.zeros(len(self.active), device=self.device) for _ in range(2))

    def _end_epoch(self) -> None:
        job = self.job
        means = {"train": torch.stack([self.loss_sum, self.score_sum]).cpu() / job.steps_per_epoch}
        extra: dict[str, Tensor] = {}
        for split in job.eval_splits:
            means[split], outputs = self._evaluate(split)
            if job.extra_metrics:
                extra |= {f"{split}_{name}": v.cpu() for name, v in job.extra_metrics(split, outputs).items()}
        # Test rows never decide: a test loss that is not finite is recorded, but ends no run.
        finite = torch.stack([self._finite(), *(means[name].isfinite().all(0) for name in ("train", "valid") if name in means)])
        diverged = self.active[~finite.all(0) & self.learning[self.active]]
        self.alive[diverged], self.trained[diverged] = False, self.at.epoch
        for name, values in {**self._metrics(means), **extra}.items():
            self.history.setdefault(name, []).append(self.of_all_runs(values).where(self.alive, torch.nan))
        if job.recipe.patience is not None:
            self._stop_early(job.recipe.patience)
        self._reset_sums()

    def _stop_early(self, patience: int) -> None:
        """Record which runs have improved, and stop those that have not for ``patience`` epochs. NaN never improves."""
        recipe, epoch = self.job.recipe, self.at.epoch
        values = recipe.stopping_sign * self.history[f"valid_{recipe.patience_on}"][-1]
        better = self.learning & (values < self.best_value)
        self.best_value[better], self.best_epoch[better] = values[better], epoch
        self.trained[self.learning & (epoch - self.best_epoch >= patience)] = epoch + 1
        if self.keeps_best and bool(better.any()):
            self._save_best(better)

    def _metrics(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        task, metrics = self.job.dataset.task, {}
        for split, (loss, score) in means.items():
            metrics[f"{split}_loss"] = loss
            rmse = self.job.unit[self.active] * score.double().sqrt()
            metrics[f"{split}_{METRIC_OF_TASK[task]}"] = rmse if task == "regression" else score
        return metrics

    def of_all_runs(self, values: Tensor) -> Tensor:
        """Return values of the active runs as values of all runs, NaN for the others."""
        every = torch.full((self.job.runs,), torch.nan, dtype=torch.float64)
        return every.index_copy(0, self.active, values.double())

    def _evaluate(self, split: str) -> tuple[Tensor, Tensor]:
        """Return mean loss and score ``(2, runs)`` and, if the data has extra metrics, the outputs of the active runs."""
        job, samples = self.job, self.job.dataset.splits[split]
        shape = (len(self.active), len(samples), job.dataset.outputs) if job.extra_metrics else (0,)
        kept = torch.zeros(shape, device=self.prepared_on)
        sums = torch.zeros(2, len(self.active), dtype=torch.float64)
        for piece, x, y in self._pieces(split):
            outputs = self._forward(x)
            values = job.loss(outputs, y), scores(job.dataset.task, outputs, y)
            sums += torch.stack([mean_of_run(each) for each in values]).cpu() * outputs.shape[1]
            if job.extra_metrics:
                kept[:, piece] = outputs.to(kept)
        distributed.sum_of_processes(sums)  # each process evaluates its part and leaves zeros elsewhere
        return sums / len(samples), distributed.sum_of_processes(kept)

    def _pieces(self, split: str) -> Iterator[tuple[slice, Tensor, Tensor]]:
        if self._batches.rows:
            if not distributed.is_leader():
                return
            for piece, x, y in self._batches.rows.pieces(split, self.active, self._piece_size()):
                yield piece, x.to(self.device), y.to(self.device)
            return
        samples = self.job.dataset.splits[split]
        for piece, x in self._shared_pieces(samples.x, distributed.part(len(samples))):
            y = samples.y[piece].to(self.device)
            yield piece, x, y.expand(len(self.active), *y.shape)

    def _shared_pieces(self, x: Tensor, part: range | None = None) -> Iterator[tuple[slice, Tensor]]:
        part, size = part or range(len(x)), self._piece_size()
        for first in range(part.start, part.stop, size):
            piece = slice(first, min(first + size, part.stop))
            shared = self.job.dataset.encode(x[piece].to(self.prepared_on)).to(self.device)
            yield piece, shared.expand(len(self.active), *shared.shape)

    def _piece_size(self) -> int:
        return max(1, EVALUATION_NUMEL // (len(self.active) * self.job.widest))


class StackedTraining(Training):
    """All runs as one model with batched matrix products.

    A run that has diverged or stopped early stays in the stack with a learning rate of 0. Once only a few runs are learning,
    the stack is rebuilt with these alone.
    """

    def __init__(self, job: Job, keep_weights: bool = False) -> None:
        super().__init__(job, keep_weights)
        self._build()
        self._weights: Tensor | None = None
        self._best = {name: values.clone() for name, values in self._live().items()} if self.keeps_best else {}

    def _build(self) -> None:
        job, hyper = self.job, {name: values[self.active] for name, values in self.hyper.items()}
        self.model = job.build_stacked(self.active.tolist()).to(self.device)
        self.optimizer = StackedOptimizer(
            self.model, job.family, OPTIMIZERS.get(job.recipe.optimizer), hyper, job.recipe.decay_norm
        )
        self._dropouts = [layer for layer in self.model.modules() if isinstance(layer, SeededDropout)]
        self._weights = None

    def _live(self) -> dict[str, Tensor]:
        parameters = {name for name, _ in self.model.named_parameters()}
        buffers = {f"buffer.{name}": v for name, v in self.model.state_dict().items() if name not in parameters}
        return {"values": self.optimizer.values} | buffers

    def _tensors(self) -> dict[str, Tensor]:
        return self._live() | {f"optimizer.{name}": values for name, values in self.optimizer.state.items()}

    def state(self) -> dict[str, Tensor]:
        """Return everything that the training resumes from."""
        best = {f"best.{name}": values for name, values in self._best.items()}
        return super().state() | self._tensors() | best

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        super().load_state(state)
        self._build()
        for name, values in {**self._tensors(), **{f"best.{name}": v for name, v in self._best.items()}}.items():
            values.copy_(state[name])

    def weights(self, run: int) -> dict[str, Tensor]:
        """Return a run's parameters and buffers."""
        return self.model.weights(self.active.tolist().index(run))

    def finish(self) -> None:
        """Restore the weights of every run's best epoch, if they were kept."""
        if self.keeps_best:
            self.active = torch.arange(self.job.runs)
            self._build()
            for name, values in self._live().items():
                values.copy_(self._best[name])

    def _set_rates(self, rates: Tensor) -> None:
        self.optimizer.prepare(self.at.epoch * self.job.steps_per_epoch, rates)
        self.model.train()

    def _update(self, x: Tensor, y: Tensor) -> None:
        for layer in self._dropouts:
            layer.step = self.steps
        outputs = self.model(x)
        loss = self.job.loss(outputs, y)
        if self._weights is None:
            self._weights = torch.full_like(loss, 1 / loss[0].numel())
        self.optimizer.step(loss, self._weights, self.at.step)
        self.loss = mean_of_run(loss.detach())
        self.loss_sum += self.loss
        self.score_sum += mean_of_run(scores(self.job.dataset.task, outputs.detach(), y))

    @torch.no_grad()
    def _forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.model.eval()(x)
        return outputs

    def _finite(self) -> Tensor:
        return self.optimizer.values.isfinite().all(1).cpu()

    def _save_best(self, better: Tensor) -> None:
        inside = better[self.active]
        for name, values in self._live().items():
            self._best[name][self.active[inside].to(values.device)] = values[inside.to(values.device)]

    def _shrink(self) -> None:
        learning = self.learning[self.active]
        if len(self.active) <= MIN_STACK or int(learning.sum()) > SHRINK_AT * len(self.active):
            return
        before = {name: values[learning.to(values.device)] for name, values in self._tensors().items()}
        self._keep_active(learning)
        self._build()
        for name, values in self._tensors().items():
            values.copy_(before[name])
