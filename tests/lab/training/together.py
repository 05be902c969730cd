"""Run by torchrun: trains the jobs of a file in several processes, and the leader writes the losses of their steps.

Every job is trained twice, in float64: without a break, and stopped by the process that is not the leader and gone on with.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boolit.lab.training import Checkpoint, Job, StackedTraining, train
from boolit.lab.training.distributed import leading, processes, rank

STOPPED_AFTER = 5


def stopping(training: StackedTraining) -> bool:
    return rank() == 0 or training.steps < STOPPED_AFTER


def in_double(config: dict[str, Any]) -> Job:
    """The job of a run, its samples in float64 (as `in_double` of tests/lab/conftest.py)."""
    job = Job.of([config])
    data = job.dataset
    splits = {name: replace(split, x=double(split.x), y=double(split.y)) for name, split in data.splits.items()}
    probes = tuple(replace(probe, x=double(probe.x)) for probe in data.probes)
    encode = data.encode and (lambda x: double(data.encode(x)))
    return replace(job, dataset=replace(data, splits=splits, probes=probes, encode=encode))


def double(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values


def main(configs: Path, results: Path) -> None:
    torch.set_num_threads(1)
    outcomes = []
    with processes():
        for number, config in enumerate(json.loads(configs.read_text())):
            folder = configs.parent / str(number)
            folder.mkdir(exist_ok=True)
            torch.set_default_dtype(torch.float32)  # which samples are drawn in
            job = in_double(config)
            torch.set_default_dtype(torch.float64)
            unbroken = train(job)
            stopped = train(job, Checkpoint(folder) if leading() else None, stopping)
            resumed = train(job, Checkpoint(folder) if leading() else None)
            assert unbroken is not None
            assert resumed is not None
            assert stopped is None
            outcomes.append([(done.outcomes[0].steps, done.outcomes[0].metrics) for done in (unbroken, resumed)])
        if leading():
            results.write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
