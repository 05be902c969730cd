"""The torch operators, and the choice between kernel and formula.

``boolit::gates`` and ``boolit::gates_backward`` are opaque to torch.compile and known to autograd, vmap and fake tensors.
An approximate gate keeps one bit an input element for its backward; an exact one keeps its input.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from boolit.logic.formulas import formula
from boolit.logic.kernels.plan import fits, out_shape, plan_for
from boolit.logic.program import Program

_SCHEMAS = (
    "gates(Tensor x, str program, int dim, bool keep) -> (Tensor, Tensor)",
    "gates_backward(Tensor grad, Tensor saved, str program, int dim, SymInt channels) -> Tensor",
)
_library = torch.library.Library("boolit", "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema)
_gates = torch.ops.boolit.gates.default
_gates_backward = torch.ops.boolit.gates_backward.default


def evaluate(x: Tensor, program: Program, dim: int) -> Tensor:
    """The program's output along ``dim``: by kernel for CPU tensors; elsewhere, in exports and under torch.func by formula.

    Shape: ``(…, C, …)`` to ``(…, program.out_channels(C), …)``.
    """
    rank = x.dim()
    if rank == 0:
        raise IndexError("a tensor of shape () has no channels; give it a dimension, or use boolit.combine on separate logits")
    if not -rank <= dim < rank:
        raise IndexError(f"dim={dim} is out of range for a tensor of shape {tuple(x.shape)}; use {-rank} to {rank - 1}")
    if dim < 0:
        dim += rank
    if not x.is_floating_point():
        raise TypeError(f"logits must be floating-point, got {x.dtype}; convert them with x.float()")
    if not x.is_cpu or not fits(program, x) or _wants_formula():
        return formula(x, program, dim)
    if not x.is_contiguous() and (moved := x.movedim(dim, -1)).is_contiguous():  # channels_last
        return evaluate(moved, program, -1).movedim(-1, dim)
    if _is_plain(x):
        if not (x.requires_grad and torch.is_grad_enabled()):
            return _run(x, program, dim, keep=False)[0]
        return cast(Tensor, _Gates.apply(x, program, dim))  # type: ignore[no-untyped-call]
    program.groups(x.shape[dim])
    return cast(Tensor, _gates(x, str(program), dim, program.approximate)[0])


# ------------------------------------------------------------------------------------------------ which way to go


def _wants_formula() -> bool:
    """In an export (the result must not need boolit to run), in forward mode and under torch.func.

    torch differentiates registered operators in reverse mode only, and not inside its function transforms.
    """
    return torch.compiler.is_exporting() or forward_ad._current_level >= 0 or _transformed()


# Asking whether a tensor is what it seems costs one private call each; a torch without them loses the short cut only.
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_is_batched = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: True)


def _is_plain(x: Tensor) -> bool:
    """No tracing, no mode, no transform, no subclass, no sign to be applied: the tensor's memory is the whole truth."""
    return (
        not torch.compiler.is_compiling()
        and (type(x) is Tensor or type(x) is Parameter)
        and _dispatch_modes() == 0
        and not _transformed()
        and not x.is_neg()
    )


# ------------------------------------------------------------------------------------------------ the work


def _run(x: Tensor, program: Program, dim: int, keep: bool) -> tuple[Tensor, Tensor | None]:
    x = x.contiguous()
    plan = plan_for(program, x.dtype, x.shape, dim)
    out = torch.empty_strided(plan.out_shape, plan.out_strides, dtype=x.dtype)  # takes half the time of torch.empty
    kept = torch.empty(plan.kept_bytes, dtype=torch.uint8) if keep else None
    plan.forward(x, out, kept)
    return out, kept


def _forward(x: Tensor, program: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    out, kept = _run(x, Program.parse(program), dim, keep)
    return out, kept if kept is not None else torch.empty(0, dtype=torch.uint8)


def _run_backward(grad: Tensor, saved: Tensor, program: Program, dim: int, channels: int) -> Tensor:
    grad, saved = grad.contiguous(), saved.contiguous()
    shape = torch.Size((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]))
    grad_x = torch.empty(shape, dtype=grad.dtype)
    x, kept = (None, saved) if saved.dtype == torch.uint8 else (saved, None)
    plan_for(program, grad.dtype, shape, dim).backward(grad, x, kept, grad_x)
    return grad_x


def _backward(grad: Tensor, saved: Tensor, program: str, dim: int, channels: int) -> Tensor:
    return _run_backward(grad, saved, Program.parse(program), dim, channels)


_library.impl("gates", _forward, "CPU")
_library.impl("gates_backward", _backward, "CPU")


# ------------------------------------------------------------------------------------------------ shapes without values


def _fake_forward(x: Tensor, program: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    parsed = Program.parse(program)
    kept = x.new_empty(_kept_bytes(x, parsed, dim) if keep else 0, dtype=torch.uint8)
    return x.new_empty(out_shape(parsed, x.shape, dim)), kept


def _fake_backward(grad: Tensor, _saved: Tensor, _program: str, dim: int, channels: int) -> Tensor:
    return grad.new_empty((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]))


torch.library.register_fake("boolit::gates", _fake_forward, lib=_library)
torch.library.register_fake("boolit::gates_backward", _fake_backward, lib=_library)


def _kept_bytes(x: Tensor, program: Program, dim: int) -> int:
    """What boolit_kept_bytes computes, for symbolic shapes too."""
    inner = outer = 1
    for size in x.shape[:dim]:
        outer *= size
    for size in x.shape[dim + 1 :]:
        inner *= size
    groups = program.groups(x.shape[dim])
    total = 0
    for (name, _), (_, size) in zip(program.members, program.shares(groups), strict=True):
        planes = (program.k - 1).bit_length() + 1 if name in ("xnor", "xor") else program.k
        if program.pairing == "halves":
            plane = outer * ((size * inner + 7) // 8)
        elif inner == 1:
            merged = size == groups and (program.strategy == "p" or len(program.members) == 1)
            plane = (outer * size + 7) // 8 if merged else outer * ((size + 7) // 8)
        else:
            plane = outer * size * ((inner + 7) // 8)
        total += planes * plane
    return total


# ------------------------------------------------------------------------------------------------ derivatives


def _save(ctx: Any, inputs: tuple[Tensor, str, int, bool], output: tuple[Tensor, Tensor]) -> None:
    x, ctx.program, ctx.dim, keep = inputs
    ctx.channels = x.shape[ctx.dim]
    ctx.save_for_backward(output[1] if keep else x)


def _differentiate(ctx: Any, grad: Tensor, _kept: None) -> tuple[Tensor, None, None, None]:
    (saved,) = ctx.saved_tensors
    return _gates_backward(grad, saved, ctx.program, ctx.dim, ctx.channels), None, None, None


def _save_backward(ctx: Any, inputs: tuple[Tensor, Tensor, str, int, int], output: Tensor) -> None:  # noqa: ARG001 (torch names it)
    grad, saved, ctx.program, ctx.dim, ctx.channels = inputs
    ctx.save_for_backward(grad, saved)


def _differentiate_backward(ctx: Any, towards: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
    """Second derivatives: the backward is linear in grad; in x only an exact gate's depends on it."""
    grad, saved = ctx.saved_tensors
    program = Program.parse(ctx.program)
    if saved.dtype == torch.uint8:
        return _transposed(towards, saved, program, ctx.dim), None, None, None, None
    higher = torch.is_grad_enabled()
    with torch.enable_grad():
        # names of their own in the graph, lest what grad owes to x be counted here and by the caller
        x, g = (t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in (saved, grad))
        (first,) = torch.autograd.grad(formula(x, program, ctx.dim), x, g, create_graph=True)
        to_grad, to_x = torch.autograd.grad(first, (g, x), towards, create_graph=higher, allow_unused=True)
    return to_grad, torch.zeros_like(x) if to_x is None else to_x, None, None, None


def _transposed(towards: Tensor, kept: Tensor, program: Program, dim: int) -> Tensor:
    """The approximate gates' own linear map, applied to ``towards``.

    The backward of a gradient that is 1 on one member's block and 0 elsewhere is that member's coefficient of each input.
    """
    channels = towards.shape[dim]
    groups = program.groups(channels)
    sizes = [size for _, size in program.shares(groups)]
    pieces = []
    for member, (start, size) in enumerate(program.shares(groups)):
        ones = [float(i == member) for i in range(len(sizes))]
        blocks = [
            towards.new_full((*towards.shape[:dim], s, *towards.shape[dim + 1 :]), one)
            for s, one in zip(sizes, ones, strict=True)
        ]
        coefficients = _gates_backward(torch.cat(blocks, dim), kept, str(program), dim, channels)
        weighted = coefficients * towards
        adjacent = program.pairing == "adjacent"
        axes = (groups, program.k) if adjacent else (program.k, groups)
        grouped = weighted.reshape(*towards.shape[:dim], *axes, *towards.shape[dim + 1 :])  # unflatten knows no vmap
        pieces.append(grouped.sum(dim + 1 if adjacent else dim).narrow(dim, start, size))
    return torch.cat(pieces, dim)


torch.library.register_autograd("boolit::gates", _differentiate, setup_context=_save, lib=_library)
torch.library.register_autograd("boolit::gates_backward", _differentiate_backward, setup_context=_save_backward, lib=_library)


class _Gates(torch.autograd.Function):
    """The same for plain tensors, without the dispatcher: half the cost of a small call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, program: Program, dim: int) -> Tensor:
        keep = program.approximate
        out, kept = _run(x, program, dim, keep)
        ctx.program, ctx.dim, ctx.channels = program, dim, x.shape[dim]
        ctx.save_for_backward(kept if keep else x)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (saved,) = ctx.saved_tensors
        if _is_plain(grad) and not torch.is_grad_enabled() and not _is_batched(grad):
            return _run_backward(grad, saved, ctx.program, ctx.dim, ctx.channels), None, None
        return _gates_backward(grad, saved, str(ctx.program), ctx.dim, ctx.channels), None, None


# ------------------------------------------------------------------------------------------------ vmap


def _vmap_forward(
    _info: Any, in_dims: tuple[int, None, None, None], x: Tensor, program: str, dim: int, keep: bool
) -> tuple[tuple[Tensor, Tensor], tuple[int, int | None]]:
    x = x.movedim(in_dims[0], 0)
    if not keep:
        return _gates(x, program, dim + 1, False), (0, None)
    results = [_gates(sample, program, dim, True) for sample in x]  # each sample's bits must stand alone
    return (torch.stack([out for out, _ in results]), torch.stack([kept for _, kept in results])), (0, 0)


def _vmap_backward(
    info: Any,
    in_dims: tuple[int | None, int | None, None, None, None],
    grad: Tensor,
    saved: Tensor,
    program: str,
    dim: int,
    channels: int,
) -> tuple[Tensor, int]:
    grads, saveds = (
        tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        for tensor, axis in zip((grad, saved), in_dims[:2], strict=True)
    )
    if saved.dtype == torch.uint8:
        return torch.stack([_gates_backward(g, s, program, dim, channels) for g, s in zip(grads, saveds, strict=True)]), 0
    return _gates_backward(grads, saveds, program, dim + 1, channels), 0


torch.library.register_vmap("boolit::gates", _vmap_forward, lib=_library)
torch.library.register_vmap("boolit::gates_backward", _vmap_backward, lib=_library)
