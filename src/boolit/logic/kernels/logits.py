"""What comes in as logits: which tensors are refused, in one sentence, and whose memory a kernel may read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.fx import Proxy
from torch.jit import TracerWarning, is_tracing  # type: ignore[attr-defined]
from torch.nn import Parameter

from boolit.logic.vocabulary import as_int

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_logits(x: object) -> None:
    """Refuses what no formula can be applied to: other objects, other types, other layouts."""
    if isinstance(x, Proxy):  # torch.fx traces: only the graph will know
        return
    if not isinstance(x, Tensor):
        fix = "torch.from_numpy(x)" if type(x).__module__ == "numpy" else "torch.tensor(x)"
        raise TypeError(f"logits must be a torch.Tensor, got {type(x).__name__}; make one with {fix}")
    if x.is_quantized:
        raise TypeError(f"logits must be floating-point, got {x.dtype}; convert them with x.dequantize()")
    if not x.is_floating_point():
        raise TypeError(f"logits must be floating-point, got {x.dtype}; convert them with x.float()")
    if x.dtype not in FLOATS:
        raise TypeError(f"torch cannot compute with logits of {x.dtype}; convert them with x.float() first")
    if x.is_nested:
        raise TypeError(
            "logits must be one dense tensor, got a nested one; apply the gate to x.values() or to each of x.unbind()"
        )
    if x.layout is not torch.strided:
        raise TypeError(f"logits must be a dense tensor, got one of layout {x.layout}; convert it with x.to_dense()")
    if not is_dynamo_compiling() and not is_tracing():
        check_memory(x)


def position(dim: int, shape: Sequence[int]) -> int:
    """``dim`` counted from the front; refuses what is no dimension of the shape."""
    rank = len(shape)
    if rank == 0:
        raise IndexError("a tensor of shape () has no channels; give it a dimension, or use boolit.combine on separate logits")
    dim = as_int("dim", dim)
    if not -rank <= dim < rank:
        raise IndexError(f"dim={dim} is out of range for a tensor of shape {tuple(shape)}; use {-rank} to {rank - 1}")
    return dim % rank


@contextmanager
def traced_quietly() -> Iterator[None]:
    """How many channels there are is a constant of a trace, as it is of any net: nothing for torch.jit.trace to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        yield


def sizes(x: Tensor) -> tuple[int, ...]:
    """The shape as numbers, where torch.jit.trace would have tensors."""
    if not is_tracing():
        return tuple(x.shape)
    with traced_quietly():
        return tuple(int(size) for size in x.shape)


def contiguous(x: Tensor) -> Tensor:
    """The tensor in one piece: copied if it is not, after a look at what the copy would read."""
    if x.is_contiguous():
        return x
    check_memory(x)
    return x.contiguous()


def check_memory(x: Tensor) -> None:
    """Refuses a strided tensor whose storage was freed or made smaller: torch itself would read beyond it."""
    if type(x) not in (Tensor, Parameter) or not x.is_cpu or not x.numel():
        return
    try:
        storage = x.untyped_storage()
    except NotImplementedError:  # a wrapper of torch.func, which has none
        if not torch._C._are_functorch_transforms_active() and "Batched" in str(torch._C._dispatch_keys(x)):
            raise ValueError(
                "these logits are left over from a torch.vmap that is over; return them from its function"
            ) from None
        return
    last = x.storage_offset() + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    if storage.nbytes() < (last + 1) * x.element_size():
        raise _freed(x)


def _freed(x: Tensor) -> ValueError:
    return ValueError(
        f"the memory of a tensor of shape {tuple(x.shape)} was freed or made smaller: its storage has "
        f"{x.untyped_storage().nbytes()} bytes; use the tensor before that, or a copy made before"
    )
