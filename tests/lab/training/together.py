"""Trains the jobs of a file in two processes, and the leader writes the losses of their steps.

They are forked with what torchrun would tell them: so everything is imported once. Every job is trained twice, in float64:
without a break, and stopped by the process that is not the leader and gone on with.
"""

import gc
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from boolit.lab.runs import RunConfig
from boolit.lab.training import Checkpoint, Job, StackedTraining, train
from boolit.lab.training.distributed import is_leader, processes, rank

STOPPED_AFTER = 5


def stopping(training: StackedTraining) -> bool:
    return rank() == 0 or training.steps < STOPPED_AFTER


def in_double(config: RunConfig) -> Job:
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
            job = in_double(RunConfig.from_dict(config))
            torch.set_default_dtype(torch.float64)
            unbroken = train(job)
            stopped = train(job, Checkpoint(folder) if is_leader() else None, stopping)
            resumed = train(job, Checkpoint(folder) if is_leader() else None)
            assert unbroken is not None
            assert resumed is not None
            assert stopped is None
            outcomes.append([(done.outcomes[0].steps, done.outcomes[0].metrics) for done in (unbroken, resumed)])
        if is_leader():
            results.write_text(json.dumps(outcomes))


def join(number: int, port: int) -> int:
    """Starts one of the processes; its id."""
    if child := os.fork():
        return child
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.exit()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        free_port = free.getsockname()[1]
    gc.freeze()
    children = [join(number, free_port) for number in range(2)]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
