"""The processes that torchrun started, working on one training; a process alone is a group of one and never waits.

Whatever a process tells another is a tensor: no object travels, so nothing has to be unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor


@contextmanager
def processes() -> Iterator[None]:
    """Joins the group whose environment torchrun has set (``RANK``, ``WORLD_SIZE``), if there is one of several processes.

    After an error the group is not left in good order, which would wait for the others: torchrun ends them. A leader that fails
    says why; another process, which notices by a closed connection only, ends without a word.
    """
    if not dist.is_available() or "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    except RuntimeError as error:
        if leading() or not _connection_lost(error):
            raise
        raise SystemExit(2) from None
    dist.destroy_process_group()


def device() -> torch.device:
    """Where this process trains a network that is alone: on its own GPU if there is one."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if _grouped() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if _grouped() else 0


def leading() -> bool:
    """Whether this is the process that keeps the store, the checkpoints and the progress."""
    return rank() == 0


@contextmanager
def leader_first() -> Iterator[None]:
    """Lets the others do something after the leader has done it, so that they find what it has fetched."""
    if not leading():
        dist.barrier()
    yield
    if leading() and size() > 1:
        dist.barrier()


def shared(values: Tensor) -> Tensor:
    """The leader's values, in place in every process."""
    if size() > 1:
        dist.broadcast(values, 0)
    return values


def sum_of_processes(values: Tensor) -> Tensor:
    """The sum over all processes, in place and the same to the last bit in each."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def mean_of_processes(values: Tensor) -> Tensor:
    """The mean over all processes, otherwise as `sum_of_processes`."""
    return sum_of_processes(values).div_(size())


def all_agree(yes: bool) -> bool:
    """Whether every process says so."""
    if size() == 1:
        return yes
    said = torch.tensor([int(yes)])
    dist.all_reduce(said, dist.ReduceOp.MIN)
    return bool(said.item())


def _connection_lost(error: RuntimeError) -> bool:
    """gloo's errors have no type of their own; each begins with the place in its source."""
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)


def _grouped() -> bool:
    return dist.is_available() and dist.is_initialized()
