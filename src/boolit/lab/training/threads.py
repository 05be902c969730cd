"""How many threads a training is worth: small operations are over before a second thread has woken up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from boolit.lab.training.job import Job

NUMBERS_PER_THREAD = 2**17  # an operation on so many takes some 20 µs, well above the cost of waking a thread


@contextmanager
def threads_for(job: Job) -> Iterator[None]:
    """One thread where a layer's activations are small, otherwise as many as torch has; the results are the same.

    The matrix products would use all threads even for the smallest layers. Where another process keeps a core busy, each
    product then waits for it: parity trained ten times slower on a busy machine.
    """
    before = torch.get_num_threads()
    wanted = -(-job.runs * job.batch * job.widest // NUMBERS_PER_THREAD)
    torch.set_num_threads(max(1, min(before, wanted)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
