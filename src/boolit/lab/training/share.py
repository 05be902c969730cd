"""Which samples of a step's batch belong to which process and micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from boolit.lab.errors import UserError
from boolit.lab.training import distributed
from boolit.lab.training.job import Job


@dataclass(frozen=True)
class Share:
    """A batch is cut into micro-batches, one after the other, and each of these into one part a process.

    So a micro-batch has the same samples however many processes there are.
    """

    micro_batches: int
    processes: int
    rank: int

    @staticmethod
    def of(job: Job) -> Share:
        """This process's share of every batch of a job."""
        share = Share(job.recipe.accumulate, distributed.size(), distributed.rank())
        parts = share.micro_batches * share.processes
        if job.batch % parts:
            by = f"accumulate ({share.micro_batches}) × processes ({share.processes})"
            raise UserError(f"a batch of {job.batch} samples must be a multiple of {by} = {parts}; change one of them")
        return share

    def taken(self, values: Tensor, axis: int) -> Tensor:
        """What this process has of a whole batch along an axis, micro-batch by micro-batch.

        Example:
            >>> import torch
            >>> Share(micro_batches=2, processes=2, rank=1).taken(torch.arange(8), 0)
            tensor([2, 3, 6, 7])
        """
        parts: Tensor = values.unflatten(axis, (self.micro_batches, self.processes, -1))
        return parts.select(axis + 1, self.rank).flatten(axis, axis + 1)

    def moment(self, step: int, micro_batch: int) -> int:
        """A number of its own for every step, micro-batch and process; the step itself if there is one of each."""
        return (step * self.micro_batches + micro_batch) * self.processes + self.rank

    def part(self, samples: int) -> slice:
        """This process's part of some samples that are divided among all processes."""
        first, last = (samples * edge // self.processes for edge in (self.rank, self.rank + 1))
        return slice(first, last)
