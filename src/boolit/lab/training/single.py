"""One large network: micro-batches, half precision, clipping, averaged weights, compilation, several processes.

Some virtual machines announce AMX, Intel's instructions for it, and do not have them: torch believes the announcement, and its
first product of two matrices ends the process. Nothing but trying tells, and the trial must be another process.

Everything else is the stacked trainer's, of a cohort of one run, and without these options so are the numbers, up to rounding.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from boolit.errors import UserError
from boolit.lab.common.devices import present_device
from boolit.lab.datasets import Split
from boolit.lab.training import distributed
from boolit.lab.training.distributed import SyncBatchNormMode
from boolit.lab.training.job import Job
from boolit.lab.training.metrics import evaluate, losses, mean_of_run, scores
from boolit.lab.training.optimisers import FlatParameters
from boolit.lab.training.recipe import Precision
from boolit.lab.training.stacked import StackedTraining
from boolit.lab.training.threads import Prefetch
from boolit.lab.training.weight_average import WeightAverage, estimate_statistics

TRIAL = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


@lru_cache(1)
def check_bfloat16() -> None:
    """Refuses where a product in bfloat16 is an illegal instruction."""
    if subprocess.run([sys.executable, "-c", TRIAL], check=False).returncode == -signal.SIGILL:
        raise UserError(
            "training.precision is 'bfloat16', but this machine announces AMX instructions for it that it does not have; "
            "set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16, or use 'float16' or 'float32'"
        )


FIRST, GROWTH, INTERVAL = 2.0**16, 2.0, 2000  # those of torch.amp.GradScaler


class LossScale:
    """As ``torch.amp.GradScaler``: twice as large after 2000 steps without an overflow, half as large after one.

    float16 has no numbers below 6e-8, where most gradients lie, so losses are scaled up before the backward pass.

    ``state`` holds the scale and the steps since it last changed.
    """

    def __init__(self) -> None:
        self.state = torch.tensor([FIRST, 0.0], dtype=torch.float64)

    @property
    def factor(self) -> float:
        """What losses are multiplied by; a power of two, so that nothing is rounded."""
        return float(self.state[0])

    def unscale(self, gradients: Tensor) -> bool:
        """Divides gradients by the scale, in place, and says whether they are usable; the scale is adapted."""
        usable = bool(gradients.isfinite().all())
        gradients.div_(self.factor)
        if not usable:
            self.state[0], self.state[1] = self.state[0] / GROWTH, 0
        elif self.state[1] + 1 == INTERVAL:
            self.state[0], self.state[1] = self.state[0] * GROWTH, 0
        else:
            self.state[1] += 1
        return usable


@dataclass(frozen=True)
class BatchShard:
    """A batch is cut into micro-batches, one after the other, and each of these into one part per process.

    So a micro-batch has the same samples however many processes there are.
    """

    micro_batches: int
    processes: int
    rank: int

    @staticmethod
    def of(job: Job) -> BatchShard:
        """This process's part of every batch of a job."""
        shard = BatchShard(job.recipe.accumulate, distributed.size(), distributed.rank())
        parts = shard.micro_batches * shard.processes
        if job.batch % parts:
            by = f"accumulate ({shard.micro_batches}) × processes ({shard.processes})"
            raise UserError(f"a batch of {job.batch} samples must be a multiple of {by} = {parts}; change one of them")
        return shard

    def take(self, values: Tensor, axis: int) -> Tensor:
        """What this process has of a whole batch along an axis, micro-batch by micro-batch.

        Example:
            >>> import torch
            >>> BatchShard(micro_batches=2, processes=2, rank=1).take(torch.arange(8), 0)
            tensor([2, 3, 6, 7])
        """
        parts: Tensor = values.unflatten(axis, (self.micro_batches, self.processes, -1))
        return parts.select(axis + 1, self.rank).flatten(axis, axis + 1)

    def step_number(self, step: int, micro_batch: int) -> int:
        """A number of its own for every step, micro-batch and process; the step itself if there is one of each."""
        return (step * self.micro_batches + micro_batch) * self.processes + self.rank

    def part(self, samples: int) -> slice:
        """This process's part of some samples that are divided among all processes."""
        first, last = (samples * edge // self.processes for edge in (self.rank, self.rank + 1))
        return slice(first, last)


HALVES: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
COMPILER = "inductor"
STATISTICS_BATCHES = 64  # of an epoch, from which averaged weights get their batch norms' statistics


class SingleTraining(StackedTraining):
    """The training of a job of one run, by one process or by all that torchrun started.

    Evaluations are made in float32, with the averaged weights where there are some, so that they hold for the weights kept.
    """

    def __init__(self, job: Job) -> None:
        if job.runs != 1:
            raise ValueError(f"{job.runs} runs with options for a single network; plan each as a cohort of its own")
        if job.recipe.precision == "bfloat16" and present_device().type == "cpu":
            check_bfloat16()
        self.shard = BatchShard.of(job)
        super().__init__(job)
        recipe = job.recipe
        self.average = WeightAverage(self.flat.values, self.model, recipe.ema) if recipe.ema else None
        self.scale = LossScale() if recipe.precision == "float16" else None
        together = distributed.size() > 1 and recipe.sync_batch_norm
        self._norm_mode: AbstractContextManager[object] = SyncBatchNormMode() if together else nullcontext()
        self._prefetched: Tensor | None = None
        _accumulate_in_place(self.flat)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions of torch have another name for the option
            several = distributed.size() > 1
            self._parallel = DistributedDataParallel(self.model, broadcast_buffers=False) if several else None
        network: nn.Module = self._parallel or self.model
        self._network = torch.compile(network, backend=COMPILER) if recipe.compile else network

    def state(self) -> dict[str, Tensor]:
        average = self.average.state() if self.average else {}
        return average | ({"loss_scale": self.scale.state, "skipped_steps": self.skipped_steps} if self.scale else {})

    def agree_to_continue(self, wanted: bool) -> bool:
        return distributed.all_agree(wanted)

    def finish(self) -> None:
        if self.average and not self.early_stopping:
            self.average.copy_to_model()
        super().finish()

    def _batch(self) -> tuple[Tensor, Tensor]:
        if self._prefetched is not self._order:  # a new epoch
            self._prefetched, self._batches = self._order, Prefetch(self._prepare_batch, self.job.steps_per_epoch)
        return self._batches.take(self.at.step)

    def _prepare_batch(self, step: int) -> tuple[Tensor, Tensor]:
        """This process's samples of a step of the present epoch.

        What is drawn or augmented is so as a whole batch, as every sample's randomness depends on its place in it.
        """
        job, rows = self.job, self._order[:, step * self.job.batch : (step + 1) * self.job.batch]
        if self._redraws:
            x, y = self._redraw(*self._gather_rows(rows), self.at.epoch * job.steps_per_epoch + step)
            x, y = (self.shard.take(values, 1) for values in (x, y))
        else:
            x, y = self._gather_rows(self.shard.take(rows, 1))
        return self._lay_out(job.dataset.encode(x)).to(self.device), y.to(self.device)

    def _update(self, x: Tensor, y: Tensor) -> None:
        pieces = self.shard.micro_batches
        self.flat.gradients.zero_()
        sums = torch.zeros(2, self.job.runs, device=self.device)
        for number, (inputs, targets) in enumerate(zip(x.chunk(pieces, 1), y.chunk(pieces, 1), strict=True)):
            sums += self._backward(number, inputs, targets)
        self._optimise(self.flat.gradients)
        self.loss, score = distributed.mean_of_processes(sums / pieces)
        self.loss_sum += self.loss
        self.score_sum += score
        self.step_losses.append(self.loss)

    def _backward(self, number: int, x: Tensor, y: Tensor) -> Tensor:
        """Adds a micro-batch's gradients to the others'; returns its mean loss and score.

        Shape: ``(2, runs)``.
        """
        for layer in self._dropouts:
            layer.step = self.shard.step_number(self.steps, number)
        half, last = HALVES.get(self.job.recipe.precision), number == self.shard.micro_batches - 1
        # Gradients are sent to the other processes once per step, with those of the last micro-batch.
        with self._parallel.no_sync() if self._parallel and not last else nullcontext():
            with torch.autocast(self.device.type, half) if half else nullcontext(), self._norm_mode:
                outputs = self._network(x)
            wide = outputs if outputs.dtype == torch.float64 else outputs.float()
            loss = losses(self.job.loss, wide, y)
            weight = (self.scale.factor if self.scale else 1) / (loss[0].numel() * self.shard.micro_batches)
            loss.backward(torch.full_like(loss, weight))
        return torch.stack([mean_of_run(loss.detach()), mean_of_run(scores(self.job.dataset.task, outputs.detach(), y))])

    def _optimise(self, gradients: Tensor) -> None:
        if self.scale and not self.scale.unscale(gradients):
            self.skipped_steps += 1
            self._prepare_optimiser()  # Adam's bias correction counts the steps that were taken
            return
        self.optimiser.step(self._clip([gradients]), self.at.step)
        if self.average:
            self.average.update()

    def _end_epoch(self) -> None:
        self._share_statistics()
        if self.average is None:
            super()._end_epoch()
            return
        with self.average.swap():
            estimate_statistics(self.model, self._passes())
            self._share_statistics()
            super()._end_epoch()

    def _share_statistics(self) -> None:
        """Where each process has statistics of its own, the leader's are the ones that are evaluated and kept."""
        if not isinstance(self._norm_mode, SyncBatchNormMode):
            for values in self.model.buffers():
                distributed.broadcast(values)

    @torch.no_grad()
    def _passes(self) -> Iterator[None]:
        """Forward passes over the first batches of the epoch, in float32, as training saw them.

        They follow from seed and epoch alone, so a training that was stopped and resumed makes the same.
        """
        self.model.train()
        job, first = self.job, self.at.epoch * self.job.steps_per_epoch
        for step in range(min(job.steps_per_epoch, STATISTICS_BATCHES)):
            x, _ = self._prepare_batch(step)
            for number, inputs in enumerate(x.chunk(self.shard.micro_batches, 1)):
                for layer in self._dropouts:
                    layer.step = self.shard.step_number(first + step, number)
                with self._norm_mode:
                    self.model(inputs)
                yield

    def _evaluate(self, split: Split, kept: Tensor | None) -> Tensor:
        if self.shard.processes == 1:
            return super()._evaluate(split, kept)
        part = self.shard.part(len(split))
        own, own_kept = Split(split.x[part], split.y[part]), kept if kept is None else kept[:, part]
        sums = evaluate(self.job, self.model, own, own_kept) * len(own) if len(own) else torch.zeros(2, 1, dtype=torch.float64)
        if kept is not None:
            distributed.sum_of_processes(kept)  # each has filled its own part and left zeros elsewhere
        return distributed.sum_of_processes(sums) / len(split)


def _accumulate_in_place(flat: FlatParameters) -> None:
    """Makes every parameter's gradient a view of the matrix of all gradients, so that a backward pass adds to it."""
    sizes = [parameter[0].numel() for parameter in flat.parameters]
    for parameter, columns in zip(flat.parameters, torch.split(flat.gradients, sizes, 1), strict=True):
        parameter.grad = columns.view(parameter.shape)
