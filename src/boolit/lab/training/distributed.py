"""The processes that torchrun started, working on one training, and batch norm over the batches of all of them.

Whatever a process tells another is a tensor: no object travels, so nothing has to be unpickled.

A network's batch norms, whichever modules they are in, end in ``F.batch_norm``; while `SyncBatchNormMode` is active it
stands for that function, and for `moments`, from which other batch norms are computed. So no model has to know of it, and its
weights keep their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from boolit.lab.models.layers import Moments, moments


@contextmanager
def processes() -> Iterator[None]:
    """Joins the group whose environment torchrun has set (``RANK``, ``WORLD_SIZE``), if there is one of several processes.

    After an error the group is not left in good order, which would wait for the others: torchrun ends them. A leader that fails
    says why; another process, which notices by a closed connection only, ends without a word.
    """
    if not dist.is_available() or "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if (rank_here := int(os.environ["LOCAL_RANK"])) < torch.cuda.device_count():
        torch.cuda.set_device(rank_here)  # so that each process has a GPU of its own
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        dist.all_reduce(torch.zeros(1))  # one that refuses its input at once must not be gone before all have connected to it
        yield
    except RuntimeError as error:
        if is_leader() or not _connection_lost(error):
            raise
        raise SystemExit(2) from None
    dist.destroy_process_group()


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if _initialised() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if _initialised() else 0


def is_leader() -> bool:
    """Whether this is the process that keeps the store, the checkpoints and the progress."""
    return rank() == 0


@contextmanager
def leader_first() -> Iterator[None]:
    """Lets the others do something after the leader has done it, so that they find what it has fetched."""
    if not is_leader():
        dist.barrier()
    yield
    if is_leader() and size() > 1:
        dist.barrier()


def broadcast(values: Tensor) -> Tensor:
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


def _initialised() -> bool:
    return dist.is_available() and dist.is_initialized()


class SyncBatchNormMode(TorchFunctionMode):
    """Within it, batch norms in training use the statistics of all processes; every process must have as many samples.

    (torch's own ``SyncBatchNorm`` needs a GPU.)
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        instead: dict[Callable[..., Any], Callable[..., Any]] = {F.batch_norm: sync_batch_norm, moments: sync_moments}
        function = instead.get(func, func)
        return function(*args, **(kwargs or {}))


def sync_batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``F.batch_norm`` with the samples of every process in its statistics.

    Shape: ``(batch, channels, …)``, unchanged.
    """
    if not training:
        return F.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, var = _moments(x.detach())
    if running_mean is not None and running_var is not None:
        samples = size() * x.numel() // x.shape[1]
        running_mean.lerp_(mean.to(running_mean), momentum)
        running_var.lerp_((var * (samples / max(samples - 1, 1))).to(running_var), momentum)
    return cast(Tensor, _SyncNormalise.apply(x, weight, bias, mean, var, eps))  # type: ignore[no-untyped-call]


def sync_moments(x: Tensor) -> Moments:
    """`moments` of the samples of every process.

    Shape: ``(groups, samples, features)``.
    """
    mean, covariance, samples = moments(x)
    common = cast(Tensor, _Mean.apply(mean))  # type: ignore[no-untyped-call]
    off = (mean - common).unsqueeze(2)
    return Moments(common, cast(Tensor, _Mean.apply(covariance + off @ off.mT)), samples * size())  # type: ignore[no-untyped-call]


class _Mean(torch.autograd.Function):
    """The mean over all processes; the gradient's mean goes back to each, as their losses are averaged as well."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004 (nothing is to be kept)
        return mean_of_processes(values.clone())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return mean_of_processes(gradient.clone())


class _SyncNormalise(torch.autograd.Function):
    """The normalisation with given statistics, whose backward knows that they came from all samples."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, (var + eps).rsqrt())
        return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, inverse = ctx.saved_tensors
        others, gradient = _all_but_channels(x), gradient.to(mean.dtype)
        normal = (x.to(mean.dtype) - _along(mean, x)) * _along(inverse, x)
        own = torch.stack([gradient.sum(others), (gradient * normal).sum(others)])
        bias_mean, weight_mean = mean_of_processes(own.double() * (x.shape[1] / x.numel())).to(mean.dtype)
        scale = inverse if weight is None else inverse * weight
        below = (gradient - _along(bias_mean, x) - normal * _along(weight_mean, x)) * _along(scale, x)
        of_weight, of_bias = (own[i] if ctx.needs_input_grad[2 - i] else None for i in (1, 0))
        return below.to(x.dtype), of_weight, of_bias, None, None, None


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every channel over all processes; joined in double precision, where nothing cancels."""
    wide = x if x.dtype == torch.float64 else x.float()
    var, mean = (values.double() for values in torch.var_mean(wide, _all_but_channels(x), correction=0))
    mean, square = mean_of_processes(torch.stack([mean, var + mean.square()]))
    return mean.to(wide.dtype), (square - mean.square()).to(wide.dtype)


def _all_but_channels(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _along(values: Tensor, x: Tensor) -> Tensor:
    return values.view(-1, *[1] * (x.dim() - 2))
