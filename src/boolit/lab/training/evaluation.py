"""What a cohort's networks are worth on samples they share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from boolit.lab.data import Split
from boolit.lab.models import Stacked
from boolit.lab.training.job import Job
from boolit.lab.training.losses import losses, mean_of_run, scores

NUMBERS_AT_ONCE = 2**22  # of the widest layer of all runs together; bounds the memory of an evaluation


def answers(job: Job, model: Stacked, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The outputs of every run on the same stored samples, piece by piece.

    Shape: ``(samples, …)`` to pieces ``(runs, samples of the piece, outputs)``.
    """
    size = max(1, NUMBERS_AT_ONCE // (job.runs * job.widest))
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for first in range(0, x.shape[0], size):
            piece = slice(first, min(first + size, x.shape[0]))
            shared = job.dataset.encoded(x[piece]).to(device)
            yield piece, model(shared.expand(job.runs, *shared.shape))


def assess(job: Job, model: Stacked, split: Split, kept: Tensor | None = None) -> Tensor:
    """The mean loss and the mean score of every run on a split; the outputs go into ``kept`` if they are wanted.

    Shape: ``(2, runs)``; ``kept`` is ``(runs, samples, outputs)``.
    """
    sums = torch.zeros(2, job.runs, dtype=torch.float64)
    for piece, outputs in answers(job, model, split.x):
        if kept is not None:
            kept[:, piece] = outputs
        targets = split.y[piece].to(outputs.device)
        targets = targets.expand(job.runs, *targets.shape)
        values = (losses(job.loss, outputs, targets), scores(job.dataset.task, outputs, targets))
        sums += torch.stack([mean_of_run(value) for value in values]).cpu() * (piece.stop - piece.start)
    return sums / len(split)


def probed(job: Job, model: Stacked) -> dict[str, Tensor]:
    """The figures of the dataset's probes.

    Shape: ``(runs,)`` each.
    """
    figures: dict[str, Tensor] = {}
    for probe in job.dataset.probes:
        outputs = torch.cat([piece.cpu() for _, piece in answers(job, model, probe.x)], 1)
        figures |= {name: values.to(torch.float64) for name, values in probe.figures(outputs).items()}
    return figures
