"""The route from a tensor to a gate: `evaluate` calls a kernel or the reference implementation.

An ordinary CPU or CUDA tensor (on a GPU, pairs only) goes through one `torch.autograd.Function` to a kernel. torch.compile
records the operators ``boolit::gates`` and ``boolit::gates_backward``, which call the same kernels; torch.fx records
``boolit::evaluate``. Everything else (exports, torch.func, forward mode, tracing, subclasses, other devices) takes the
reference. A backward that is itself differentiated or batched uses operations that torch can differentiate.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling, is_exporting
from torch.fx import Proxy
from torch.jit import TracerWarning, is_tracing  # type: ignore[attr-defined]
from torch.nn import Parameter
from torch.overrides import has_torch_function_unary

from boolit.logic import cpu, gpu
from boolit.logic.moments import check_precision
from boolit.logic.operations import Program, as_int, not_a_multiple
from boolit.logic.reference import evaluate_reference

Plan = cpu.Plan | gpu.Plan
MAX_PLANS = 1024  # of one program

_NO_OVERRIDE = torch._C._disabled_torch_function_impl
_dispatch_modes, _transforms = torch._C._len_torch_dispatch_stack, torch._C._are_functorch_transforms_active


def evaluate(x: Tensor, program: Program, dim: int | None = None) -> Tensor:
    """Return a program's output along ``dim``.

    Args:
        x: Logits of any floating-point type.
        program: The gates.
        dim: Dimension of the channels. If not given, it is the last one, and tensors of more than three dimensions are refused.

    Shape: ``(…, C, …)`` to ``(…, program.out_channels(C), …)``.
    """
    if is_dynamo_compiling() or not is_ordinary(x):
        return _evaluate_special(x, program, dim)
    try:
        key = x.shape, x.dtype, dim, x.is_cpu
        plan = program.plans.get(key)
        if plan is None or not x.is_contiguous() or not x.data_ptr():
            return _evaluate_unplanned(x, program, dim)
    except RuntimeError:  # a tensor without a shape or an address: nested, sparse, of oneDNN
        return _evaluate_special(x, program, dim)
    return _run(plan, x)


def _run(plan: Plan, x: Tensor) -> Tensor:
    if x.requires_grad and torch.is_grad_enabled():
        return cast(Tensor, _apply(x, plan))
    return plan.forward(x, False)[0]


def is_ordinary(x: object) -> bool:
    """Return whether no mode, transform, trace, subclass or lazy sign stands between the tensor and its memory."""
    return (
        (type(x) is Tensor or type(x) is Parameter)
        and _dispatch_modes() == 0
        and not _transforms()
        and not is_tracing()
        and forward_ad._current_level < 0
        and not x.is_neg()
    )


def _evaluate_unplanned(x: Tensor, program: Program, dim: int | None) -> Tensor:
    """Evaluate an ordinary tensor that is not contiguous, or whose shape is new and needs a plan."""
    check_logits(x)
    axis = position(dim, x.shape)
    if not _has_kernel(x, program) or (x.numel() and not x.data_ptr()):
        return _evaluate_special(x, program, dim)
    if not x.is_contiguous():
        moved = x.movedim(axis, -1)
        if moved.is_contiguous():  # channels_last
            return evaluate(moved, program, -1).movedim(-1, axis)
        return evaluate(x.contiguous(), program, axis)
    plan = program.plans[x.shape, x.dtype, dim, x.is_cpu] = _make_plan(program, x.dtype, x.shape, axis, x.is_cpu)
    return _run(plan, x)


def _make_plan(program: Program, dtype: torch.dtype, shape: torch.Size, dim: int, on_cpu: bool) -> Plan:
    """Return the plan for tensors of this type and shape. A program keeps its plans, by axis; `evaluate` also by ``dim``."""
    key = shape, dtype, dim, on_cpu
    plan = program.plans.get(key)
    if plan is None:
        check_precision(program, dtype)
        if len(program.plans) >= MAX_PLANS:
            program.plans.clear()
        plan = program.plans[key] = (cpu if on_cpu else gpu).Plan(program, dtype, shape, dim)
    return cast(Plan, plan)


def _evaluate_special(x: Tensor, program: Program, dim: int | None) -> Tensor:
    """Serve torch.fx, subclasses, traces and torch.compile, in this order; everything else gets the reference."""
    overrides = getattr(type(x), "__torch_function__", _NO_OVERRIDE) is not _NO_OVERRIDE
    if type(x) is not Tensor and overrides and has_torch_function_unary(x):  # torch.fx traces, or a subclass wants to know
        return cast(Tensor, torch.ops.boolit.evaluate(x, program.spec, dim))
    check_logits(x)
    shape = static_shape(x)
    axis = position(dim, shape)
    program.groups(shape[axis])
    if is_tracing():
        with warnings.catch_warnings():  # the number of channels is a constant of a trace, as it is of any network
            warnings.simplefilter("ignore", TracerWarning)
            return evaluate_reference(x, program, axis)
    if is_dynamo_compiling():
        if is_exporting() or not _has_kernel(x, program) or forward_ad._current_level >= 0 or _transforms():
            return evaluate_reference(x, program, axis)
        if not x.is_contiguous() and (moved := x.movedim(axis, -1)).is_contiguous():  # channels_last
            return evaluate(moved, program, -1).movedim(-1, axis)
        return cast(Tensor, torch.ops.boolit.gates.default(x, program.spec, axis, program.approximate)[0])
    if type(x).__torch_dispatch__ is Tensor.__torch_dispatch__ and type(x) not in (Tensor, Parameter):
        return evaluate(x.as_subclass(Tensor), program, dim)
    return evaluate_reference(x, program, axis)


def _has_kernel(x: Tensor, program: Program) -> bool:
    return cpu.has_kernel(x) if x.is_cpu else x.is_cuda and program.k == 2 and gpu.has_kernel(x)


# ------------------------------------------------------------------------------------------------ derivatives


class _Gates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Plan) -> Tensor:
        out, kept = plan.forward(x, True)
        ctx.plan = plan
        ctx.save_for_backward(x if kept is None else kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (saved,) = ctx.saved_tensors
        if grad.layout is not torch.strided:
            grad = grad.to_dense()
        if not torch.is_grad_enabled() and is_ordinary(grad) and is_ordinary(saved):
            try:
                return ctx.plan.backward(grad, saved), None
            except RuntimeError:  # a tensor without an address: batched by torch's older vmap, or functional
                pass
        return _differentiable_backward(ctx.plan, grad, saved), None


_apply: Any = super(torch.autograd.Function, _Gates).apply  # without the check for torch.func, which `is_ordinary` has made


def _differentiable_backward(plan: Plan, grad: Tensor, saved: Tensor) -> Tensor:
    """Return the gradient of x by operations that torch can differentiate and batch."""
    _check_memory(grad)
    _check_memory(saved)
    if saved.dtype != torch.uint8:
        pullback: Any = torch.func.vjp(lambda x: evaluate_reference(x, plan.program, plan.dim), saved)[1]
        return cast(Tensor, pullback(grad)[0])
    # Approximate gates are linear given their bits. The backward of ones is each input's coefficient; the gates of a duplicate
    # ensemble have one each.
    dim, program = plan.dim, plan.program
    groups = program.groups(plan.shape[dim])
    total: Tensor | None = None
    for start in range(0, plan.out_shape[dim], groups) if groups else ():
        ones = torch.zeros(plan.out_shape, dtype=plan.dtype, device=saved.device)
        ones.narrow(dim, start, groups).fill_(1)
        coefficients = plan.backward(ones, saved)
        along = grad.narrow(dim, start, groups)
        adjacent = program.pairing == "adjacent"
        along = along.repeat_interleave(program.k, dim) if adjacent else torch.cat([along] * program.k, dim)
        part = (coefficients * along).masked_fill(coefficients == 0, 0)
        total = part if total is None else total + part
    return grad.new_zeros(plan.shape) if total is None else total


# ------------------------------------------------------------------------------------------------ operators of torch

_library = torch.library.Library("boolit", "DEF")
_library.define("evaluate(Tensor x, str spec, int? dim) -> Tensor")
_library.define("gates(Tensor x, str spec, int dim, bool keep) -> (Tensor, Tensor)")
_library.define("gates_backward(Tensor grad, Tensor saved, str spec, int dim, SymInt channels) -> Tensor")


def _gates(x: Tensor, spec: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    _check_memory(x)
    plan = _make_plan(Program.parse(spec), x.dtype, x.shape, dim, x.is_cpu)
    out, kept = plan.forward(x.contiguous(), keep)
    return out, x.new_empty(0, dtype=torch.uint8) if kept is None else kept


def _gates_backward(grad: Tensor, saved: Tensor, spec: str, dim: int, channels: int) -> Tensor:
    shape = torch.Size((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]))
    return _make_plan(Program.parse(spec), grad.dtype, shape, dim, grad.is_cpu).backward(grad, saved)


def _fake_gates(x: Tensor, spec: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    program = Program.parse(spec)
    kept = (gpu if x.is_cuda else cpu).kept_bytes(program, x.shape, dim) if keep else 0
    return x.new_empty(cpu.out_shape(program, x.shape, dim)), x.new_empty(kept, dtype=torch.uint8)


def _fake_gates_backward(grad: Tensor, _saved: Tensor, _spec: str, dim: int, channels: int) -> Tensor:
    return grad.new_empty((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]))


def _setup_context(ctx: Any, inputs: tuple[Tensor, str, int, bool], output: tuple[Tensor, Tensor]) -> None:
    x, ctx.spec, ctx.dim, keep = inputs
    ctx.channels = x.shape[ctx.dim]
    ctx.save_for_backward(output[1] if keep else x)


def _backward(ctx: Any, grad: Tensor, _kept: None) -> tuple[Tensor, None, None, None]:
    (saved,) = ctx.saved_tensors
    return torch.ops.boolit.gates_backward.default(grad, saved, ctx.spec, ctx.dim, ctx.channels), None, None, None


_library.impl("evaluate", lambda x, spec, dim: evaluate(x, Program.parse(spec), dim), "CompositeImplicitAutograd")
for _key in ("CPU", "CUDA"):
    _library.impl("gates", _gates, _key)
    _library.impl("gates_backward", _gates_backward, _key)
torch.library.register_fake("boolit::gates", _fake_gates, lib=_library)
torch.library.register_fake("boolit::gates_backward", _fake_gates_backward, lib=_library)
torch.library.register_autograd("boolit::gates", _backward, setup_context=_setup_context, lib=_library)


# ------------------------------------------------------------------------------------------------ arguments


def check_logits(x: object) -> None:
    """Raise an error for objects that no formula can be applied to: other objects, types and layouts, freed memory."""
    if isinstance(x, Proxy):  # torch.fx traces; only the graph will know
        return
    if not isinstance(x, Tensor):
        fix = "torch.from_numpy(x)" if type(x).__module__ == "numpy" else "torch.tensor(x)"
        raise TypeError(f"logits must be a torch.Tensor, got {type(x).__name__}; make one with {fix}")
    if x.dtype not in cpu.TYPES:
        fix = "dequantize" if x.is_quantized else "float"
        raise TypeError(f"logits must be float32, float64, bfloat16 or float16, got {x.dtype}; convert them with x.{fix}()")
    if x.is_nested:
        raise TypeError("logits must be one dense tensor, got a nested one; apply the gate to x.values() or each of x.unbind()")
    if x.layout is not torch.strided:
        raise TypeError(f"logits must be a dense tensor, got one of layout {x.layout}; convert it with x.to_dense()")
    if not is_dynamo_compiling() and is_ordinary(x):
        _check_memory(x)


def check_channels(x: Tensor, dim: int | None, width_multiple: int, reader: str) -> None:
    """Raise an error if x does not hold logits or the number of channels along ``dim`` is not a multiple."""
    if isinstance(x, Proxy):  # torch.fx traces: no size is known
        return
    check_logits(x)
    shape = static_shape(x)
    channels = shape[position(dim, shape)]
    if channels % width_multiple:
        raise not_a_multiple(reader, width_multiple, channels)


def _check_memory(x: Tensor) -> None:
    """Raise ValueError if the storage of a CPU tensor was freed: torch itself would read what is not there."""
    try:
        freed = x.is_cpu and x.numel() and not x._is_zerotensor() and x.untyped_storage().nbytes() == 0
    except (RuntimeError, NotImplementedError):  # a wrapper, which has no storage
        return
    if freed:
        raise ValueError(f"the memory of a tensor of shape {tuple(x.shape)} was freed; use a copy made before that")


def position(dim: int | None, shape: Sequence[int]) -> int:
    """Return ``dim`` counted from the front; None is the last dimension of up to three."""
    rank = len(shape)
    if rank == 0:
        raise IndexError("a tensor of shape () has no channels; give it a dimension, or use boolit.combine on separate logits")
    if dim is None:
        if rank > 3:
            raise ValueError(
                f"which dimension of a tensor of shape {tuple(shape)} has the channels? "
                "Give dim=1 for (N, C, H, W), dim=-1 for channels last"
            )
        return rank - 1
    dim = as_int("dim", dim)
    if not -rank <= dim < rank:
        raise IndexError(f"dim={dim} is out of range for a tensor of shape {tuple(shape)}; use {-rank} to {rank - 1}")
    return dim % rank


def static_shape(x: Tensor) -> tuple[int, ...]:
    """Return the shape as numbers, where torch.jit.trace would have tensors."""
    if not is_tracing():
        return tuple(x.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        return tuple(int(size) for size in x.shape)
