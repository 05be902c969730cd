"""Run by torchrun: trains the jobs of a file in several processes, and the leader writes the losses of their steps.

Every job is trained twice: without a break, and stopped by the process that is not the leader and gone on with.
"""

import json
import sys
from pathlib import Path

import torch

from boolit.lab.training import Checkpoint, Job, StackedTraining, train
from boolit.lab.training.distributed import leading, processes, rank

STOPPED_AFTER = 5


def stopping(training: StackedTraining) -> bool:
    return rank() == 0 or training.steps < STOPPED_AFTER


def main(configs: Path, results: Path) -> None:
    torch.set_num_threads(1)
    outcomes = []
    with processes():
        for number, config in enumerate(json.loads(configs.read_text())):
            folder = configs.parent / str(number)
            folder.mkdir(exist_ok=True)
            unbroken = train(Job.of([config]))
            stopped = train(Job.of([config]), Checkpoint(folder) if leading() else None, stopping)
            resumed = train(Job.of([config]), Checkpoint(folder) if leading() else None)
            assert unbroken is not None
            assert resumed is not None
            assert stopped is None
            outcomes.append([(done.outcomes[0].steps, done.outcomes[0].metrics) for done in (unbroken, resumed)])
        if leading():
            results.write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
