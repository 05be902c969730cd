"""The processes that torchrun started for one training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@contextmanager
def processes() -> Iterator[None]:
    """Join the process group of torchrun, if torchrun started this process and others.

    After an error the group is left to torchrun, which ends all processes: destroying it would wait for the others. The leader
    reports the error. A process that only notices a lost connection exits silently.
    """
    if not dist.is_available() or "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if (local := int(os.environ["LOCAL_RANK"])) < torch.cuda.device_count():
        torch.cuda.set_device(local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        dist.all_reduce(torch.zeros(1))  # all processes are connected before one of them can refuse its input and exit
        yield
    except RuntimeError as error:
        # gloo's errors have no type of their own, but begin with a path of its source.
        if is_leader() or not (isinstance(error, dist.DistError) or "/gloo/" in str(error)):
            raise
        raise SystemExit(2) from None
    dist.destroy_process_group()


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return dist.get_rank() if size() > 1 else 0


def is_leader() -> bool:
    """Return whether this process keeps the store, the checkpoints and the progress."""
    return rank() == 0


@contextmanager
def leader_first() -> Iterator[None]:
    """Let the other processes enter after the leader has finished, so that they find what it has fetched."""
    if not is_leader():
        dist.barrier()
    yield
    if is_leader() and size() > 1:
        dist.barrier()


def part(count: int) -> range:
    """Return this process's share of ``count`` samples."""
    first, last = (count * edge // size() for edge in (rank(), rank() + 1))
    return range(first, last)


def broadcast_object(value: T) -> T:
    """Return the leader's value."""
    values = [value]
    if size() > 1:
        dist.broadcast_object_list(values, 0)
    return values[0]


def sum_of_processes(values: Tensor) -> Tensor:
    """Sum values over all processes, in place."""
    if size() > 1:
        dist.all_reduce(values)
    return values


def all_agree(yes: bool) -> bool:
    """Return whether every process says yes."""
    return yes if size() == 1 else bool(sum_of_processes(torch.tensor(float(yes))) == size())
