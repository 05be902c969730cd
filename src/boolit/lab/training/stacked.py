"""The stacked trainer: all runs of a cohort as one model, stoppable and restorable between any two steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.devices import preparation_device, present_device
from boolit.lab.common.random import generator, keys
from boolit.lab.datasets import Split
from boolit.lab.models.layers import StackedDropout
from boolit.lab.runs import LOWER_IS_BETTER
from boolit.lab.training import metrics
from boolit.lab.training.early_stopping import EarlyStopping
from boolit.lab.training.job import Job
from boolit.lab.training.optimisers import OPTIMISERS, FlatParameters, epoch_rates
from boolit.lab.training.threads import Prefetch

BLOCK_NUMEL = 2**20
TINY = 1e-6  # as torch.nn.utils.clip_grad_norm_


class Position(NamedTuple):
    """How far a training is: whole epochs, and steps of the one it is in."""

    epoch: int = 0
    step: int = 0


class StackedTraining:
    """The training of one job. Each run's numbers depend on its own seed and hyper-parameters only.

    A run whose parameters, or loss on ``train`` or ``valid``, cease to be finite has diverged: from that epoch on it is frozen
    at zero weights with a learning rate of zero, and the others never notice.

    What a step reads and writes is on the present ``device``; what is decided once per epoch (who has diverged, who is
    stopped) is on the CPU, so that no step waits for an answer.
    """

    def __init__(self, job: Job) -> None:
        self.at, self.device = Position(), present_device()
        self._prepared_on = preparation_device(self.device)
        self.job = job = job.on(self._prepared_on)
        self.model = job.build().to(self.device)
        self.flat = FlatParameters(self.model, self.model.rate_factors())
        self.hyper = job.hyper()
        self.optimiser = OPTIMISERS[job.recipe.optimiser](self.flat.values, self.hyper, self.flat.factors)
        self.finite_epochs = torch.full((job.runs,), job.recipe.epochs, dtype=torch.int64)
        self.loss_sum, self.score_sum, self.loss = (torch.zeros(job.runs, device=self.device) for _ in range(3))
        self.history: dict[str, list[Tensor]] = {}
        self.step_losses: list[Tensor] = []  # kept of single networks only, where steps are few and slow
        self._augment = job.recipe.augment
        self._augmentation_keys, self._draw_keys = (
            keys(job.seeds, purpose).to(self._prepared_on) for purpose in ("augmentation", "draw")
        )
        self._redraws = bool(self._augment or job.dataset.draw)
        self._own_rows = metrics.ResampledRows(job) if job.resamples else None
        live = {"values": self.flat.values} | {f"buffer.{name}": values for name, values in self.model.named_buffers()}
        patience = job.recipe.patience
        self.early_stopping = None if patience is None else EarlyStopping(live, job.runs, job.recipe.epochs, patience)
        self._dropouts = [layer for layer in self.model.modules() if isinstance(layer, StackedDropout)]
        self._weights: Tensor | None = None
        self._orders = Prefetch(partial(_draw_order, job), job.recipe.epochs)
        self.skipped_steps = torch.zeros(1, dtype=torch.int64)  # for gradients beyond float16; counted by single networks only
        self.begin_epoch()

    @property
    def alive(self) -> Tensor:
        """Which runs have not diverged; ``finite_epochs`` says after how many epochs the others did.

        Shape: ``(runs,)``.
        """
        return self.finite_epochs == self.job.recipe.epochs

    @property
    def learning(self) -> Tensor:
        """Which runs have neither diverged nor been stopped early.

        Shape: ``(runs,)``.
        """
        return self.alive & self.early_stopping.running if self.early_stopping else self.alive

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.at.epoch >= self.job.recipe.epochs or (self.at.step == 0 and not bool(self.learning.any()))

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return self.at.epoch * self.job.steps_per_epoch + self.at.step

    def whole(self) -> StackedTraining:
        """The training of all runs: itself."""
        return self

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold besides what every training has; changed in place."""
        return {}

    def agree_to_continue(self, wanted: bool) -> bool:
        """Whether to continue: where several processes train together, all of them have to want it."""
        return wanted

    def finish(self) -> None:
        """Leaves every run with the weights that count: those of its best epoch if runs are stopped early."""
        if self.early_stopping:
            self.early_stopping.restore_best()

    def begin_epoch(self) -> None:
        """Prepares what holds throughout the epoch: the order of the samples and the learning rates."""
        dataset = self.job.dataset
        stored = dataset.splits["train"] if dataset.pool is None else dataset.pool
        self._order = self._orders.take(self.at.epoch).to(stored.x.device)
        self._prepare_optimiser()
        self._block = range(0)
        self.model.train()

    def _prepare_optimiser(self) -> None:
        recipe, epoch, steps = self.job.recipe, self.at.epoch, self.job.steps_per_epoch
        rates = epoch_rates(recipe, epoch, steps, self.hyper["learning_rate"], self.hyper["peak"])
        self.optimiser.prepare(epoch * steps - int(self.skipped_steps), rates.where(self.learning, 0))

    def step(self) -> None:
        """One batch of every run, and what is due at the end of the epoch after its last one."""
        self._update(*self._batch())
        self.at = Position(self.at.epoch, self.at.step + 1)
        if self.at.step == self.job.steps_per_epoch:
            self._end_epoch()
            self.at = Position(self.at.epoch + 1)
            if not self.done:
                self.begin_epoch()

    def _batch(self) -> tuple[Tensor, Tensor]:
        size = self.job.batch
        if self.at.step not in self._block:
            self._gather_block()
        first = (self.at.step - self._block.start) * size
        x, y = self._x[:, first : first + size], self._y[:, first : first + size]
        if not self._redraws:
            return x, y
        x, y = self._redraw(x, y, self.steps)
        return self.job.dataset.encode(x).to(self.device), y.to(self.device)

    def _redraw(self, x: Tensor, y: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """A batch as it is in a step only, not yet encoded."""
        dataset = self.job.dataset
        if dataset.draw:
            x, y = dataset.draw(x, y, self._draw_keys, step)
        if self._augment:
            x = self._augment(x, self._augmentation_keys, step)
        return x, y

    def _gather_block(self) -> None:
        """Collects the batches of the next steps, of as many as are small together.

        Blocks begin at the same steps wherever a training was resumed: a batch then lies in memory as in an unbroken one, and
        every product is the same call, whose sums a library has no reason to order differently.
        """
        job = self.job
        steps = max(1, BLOCK_NUMEL // (job.runs * job.batch * math.prod(job.dataset.inputs)))
        start = self.at.step // steps * steps
        self._block = range(start, min(start + steps, job.steps_per_epoch))
        rows = self._order[:, start * job.batch : self._block.stop * job.batch]
        train, encode = job.dataset.splits["train"], job.dataset.encode
        if not self._redraws and not self._own_rows and self.device.type == "cpu":
            self._x, self._y = metrics.gather_encoded(train.x, rows, encode), metrics.gather(train.y, rows)
            return
        self._x, self._y = self._gather_rows(rows)
        if not self._redraws:
            self._x, self._y = self._lay_out(encode(self._x)).to(self.device), self._y.to(self.device)

    def _gather_rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Stored samples of every run and their targets.

        Shape: ``(runs, samples)`` to ``(runs, samples, …)`` each.
        """
        if self._own_rows:
            return self._own_rows.take("train", rows)
        x, y = metrics.gather_samples(self.job.dataset.splits["train"], rows)
        return x.to(self._prepared_on), y.to(self._prepared_on)

    def _lay_out(self, x: Tensor) -> Tensor:
        """Stacked layers take the batch last; flat samples can be laid out so once for all steps of a block."""
        return x.mT.contiguous().mT if x.dim() == 3 else x

    def _update(self, x: Tensor, y: Tensor) -> None:
        for layer in self._dropouts:
            layer.step = self.steps
        outputs = self.model(x)
        loss = metrics.losses(self.job.loss, outputs, y)
        self.optimiser.step(self._clip(self.flat.gradients_of(loss, self._mean_weights(loss))), self.at.step)
        self.loss = metrics.mean_of_run(loss.detach())
        self.loss_sum += self.loss
        self.score_sum += metrics.mean_of_run(metrics.scores(self.job.dataset.task, outputs.detach(), y))

    def _clip(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """Every run's gradient, scaled down to the recipe's ``clip`` where it is longer.

        Shape: ``(runs, …)`` each, in as many parts or in one of ``(runs, parameters)``.
        """
        if not self.job.recipe.clip:
            return gradients
        parts = [gradient.flatten(1) for gradient in gradients]
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        return [whole.mul_((self.job.recipe.clip / (whole.norm(dim=1, keepdim=True) + TINY)).clamp(max=1))]

    def _mean_weights(self, loss: Tensor) -> Tensor:
        """What turns losses into the mean of each run; made once, as it never changes."""
        if self._weights is None:
            self._weights = torch.full_like(loss, 1 / loss[0].numel())
        return self._weights

    def _end_epoch(self) -> None:
        means = {"train": torch.stack([self.loss_sum, self.score_sum]).cpu() / self.job.steps_per_epoch}
        self.loss_sum.zero_(), self.score_sum.zero_()
        extra: dict[str, Tensor] = {}
        for name in self.job.eval_splits:
            split = self.job.dataset.splits[name]
            outputs = self._output_buffer(split)
            means[name] = self._own_rows.evaluate(self.model, name) if self._own_rows else self._evaluate(split, outputs)
            if self.job.dataset.extra_metrics and outputs is not None:
                found = self.job.dataset.extra_metrics(name, outputs)
                extra |= {f"{name}_{metric}": values.cpu() for metric, values in found.items()}
        # Test rows measure only: a loss of theirs that is not finite ends no run, but is recorded as it is.
        decisive = (means[name].T for name in ("train", "valid") if name in means)
        self._freeze(self.alive & ~metrics.finite(self.flat.values, *decisive))
        for name, values in {**self._metrics(means), **extra}.items():
            self.history.setdefault(name, []).append(values.double().where(self.alive, torch.nan))
        if self.early_stopping:
            self.early_stopping.update(self.at.epoch, self._stopping_loss())

    def _metrics(self, means: dict[str, Tensor]) -> dict[str, Tensor]:
        """Loss and the task's metric of every split, from the means of losses and scores."""
        task, found = self.job.dataset.task, {}
        for split, (loss, score) in means.items():
            found[f"{split}_loss"] = loss
            found[f"{split}_{metrics.METRIC_OF_TASK[task]}"] = metrics.metric_of_scores(task, score.double(), self.job.unit)
        return found

    def _stopping_loss(self) -> Tensor:
        """What early stopping wants to be low, after the present epoch.

        Shape: ``(runs,)``.
        """
        name, dataset = self.job.recipe.patience_on, self.job.dataset
        if f"valid_{name}" not in self.history:
            known = ", ".join(["loss", metrics.METRIC_OF_TASK[dataset.task], *dataset.extra_metric_names("valid")])
            raise UserError(f"training.patience_on is {name!r}; the split valid has {known}; choose one of them")
        last = self.history[f"valid_{name}"][-1]
        return last if name in LOWER_IS_BETTER else -last

    def _output_buffer(self, split: Split) -> Tensor | None:
        """Where a split's outputs are kept, if there are extra metrics of them."""
        dataset = self.job.dataset
        if dataset.extra_metrics is None:
            return None
        return torch.zeros(self.job.runs, len(split), dataset.outputs, device=self._prepared_on)

    def _evaluate(self, split: Split, kept: Tensor | None) -> Tensor:
        """Mean loss and score of a split; its outputs go into ``kept``."""
        return metrics.evaluate(self.job, self.model, split, kept)

    def _freeze(self, dead: Tensor) -> None:
        if not bool(dead.any()):
            return
        self.finite_epochs[dead] = self.at.epoch
        there = dead.to(self.device)
        for values in (self.flat.values, *self.optimiser.state.values(), *self.model.buffers()):
            values[there] = 0


def _draw_order(job: Job, epoch: int) -> Tensor:
    """The rows of every run in the order of an epoch's steps.

    Shape: ``(runs, steps × batch)``.
    """
    samples = len(job.dataset.splits["train"])
    drawn = (generator(seed, "order", epoch) for seed in job.seeds)
    return torch.stack([torch.randperm(samples, generator=own)[: job.steps_per_epoch * job.batch] for own in drawn])
