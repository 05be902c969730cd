"""The torch operators, and the choice between kernel and formula.

``boolit::evaluate`` is what torch.fx and torch.jit.script write down: a name in front of `evaluate`, which makes the choice.
``boolit::gates`` and ``boolit::gates_backward`` are opaque to torch.compile and known to autograd, vmap and fake tensors.
An approximate gate keeps one bit per input element for its backward; an exact one keeps its input.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.jit import is_tracing  # type: ignore[attr-defined]
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode, has_torch_function_unary

from boolit.logic.kernels.library import fits, out_shape, plan_for
from boolit.logic.kernels.logits import check_logits, check_memory, contiguous, position, sizes, traced_quietly
from boolit.logic.program import Program
from boolit.logic.reference import formula
from boolit.logic.vocabulary import as_int

_SCHEMAS = (
    "evaluate(Tensor x, str program, int dim) -> Tensor",
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
    if not _is_plain(x) or not fits(program, x):
        return _evaluate_special(x, program, dim)
    shape = x.shape
    if type(dim) is not int or not 0 <= dim < len(shape):
        dim = position(dim, shape)
    if not x.is_contiguous():
        check_memory(x)
        if (moved := x.movedim(dim, -1)).is_contiguous():  # channels_last
            return evaluate(moved, program, -1).movedim(-1, dim)
    if not (x.requires_grad and torch.is_grad_enabled()):
        return _run(x, program, dim, keep=False)[0]
    return cast(Tensor, _Gates.apply(x, program, dim))  # type: ignore[no-untyped-call]


def _evaluate_special(x: Tensor, program: Program, dim: int) -> Tensor:
    """For all but plain tensors on the CPU: tracers, transforms, subclasses, other devices, signs and zeros to be applied."""
    if _overrides_functions(x) and has_torch_function_unary(x):
        return cast(Tensor, torch.ops.boolit.evaluate(x, str(program), as_int("dim", dim)))
    check_logits(x)
    dim = position(dim, sizes(x))
    if is_tracing():
        with traced_quietly(), _OnnxFunctions():
            return formula(x, program, dim)
    if not torch.compiler.is_compiling() and _dispatch_modes() == 0 and not isinstance(x, FakeTensor):
        if type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            return _subclass_formula(x, program, dim)
        if type(x) is not Tensor and type(x) is not Parameter:
            return evaluate(x.as_subclass(Tensor), program, dim)
    if not x.is_cpu or not fits(program, x) or _wants_formula():
        return formula(x, program, dim)
    if not x.is_contiguous() and (moved := x.movedim(dim, -1)).is_contiguous():  # channels_last
        return evaluate(moved, program, -1).movedim(-1, dim)
    program.groups(x.shape[dim])
    return cast(Tensor, _gates(x, str(program), dim, program.approximate)[0])


def _subclass_formula(x: Tensor, program: Program, dim: int) -> Tensor:
    """For a subclass that sees every operator: if it knows any, then those of torch (DTensor does)."""
    try:
        return formula(x, program, dim)
    except (TypeError, NotImplementedError) as error:
        raise NotImplementedError(
            f"a {type(x).__name__} lacks operations a gate is made of; give the gate the tensor that is inside it"
        ) from error


# ------------------------------------------------------------------------------------------------ which way to go


def _wants_formula() -> bool:
    """In an export (the result must not need boolit to run), in forward mode and under torch.func.

    torch differentiates registered operators in reverse mode only, and not inside its function transforms.
    """
    return torch.compiler.is_exporting() or forward_ad._current_level >= 0 or _transformed()


# Asking whether a tensor is what it seems costs one private call each; a torch without them loses the short cut only.
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_is_tracing = getattr(torch._C, "_is_tracing", is_tracing)


def _overrides_functions(x: object) -> bool:
    """Whether it wants to know what it is given to: what torch.fx traces with does, and so do most subclasses."""
    function = getattr(type(x), "__torch_function__", torch._C._disabled_torch_function_impl)
    return type(x) is not Tensor and function is not torch._C._disabled_torch_function_impl


class _OnnxFunctions(TorchFunctionMode):
    """torch.onnx.export with dynamo=False knows neither expm1 nor atanh; it knows what they are made of here."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.onnx.is_in_onnx_export():
            if function is torch.expm1:
                return torch.tanh(args[0] / 2) * (torch.exp(args[0]) + 1)
            if function is torch.atanh:
                return (torch.log1p(args[0]) - torch.log1p(-args[0])) / 2
        return function(*args, **(kwargs or {}))


def _is_plain(x: Tensor) -> bool:
    """No tracing, no mode, no transform, no subclass, no sign to be applied: the tensor's memory is the whole truth."""
    try:
        return (
            (type(x) is Tensor or type(x) is Parameter)
            and not is_dynamo_compiling()
            and _dispatch_modes() == 0
            and not _transformed()
            and not _is_tracing()
            and forward_ad._current_level < 0
            and x.is_cpu
            and not x.is_neg()
            and not x.is_nested
            and x.data_ptr() != 0  # a zero tensor and a functional one have no memory of their own
        )
    except RuntimeError:  # no address at all: sparse, of oneDNN, or left over from a transform
        return False


# ------------------------------------------------------------------------------------------------ the work


def _run(x: Tensor, program: Program, dim: int, keep: bool) -> tuple[Tensor, Tensor | None]:
    x = contiguous(x)
    plan = plan_for(program, x.dtype, x.shape, dim)
    # on the device of x, whatever torch.set_default_device says, and in half the time of torch.empty
    out = x.new_empty_strided(plan.out_shape, plan.out_strides)
    kept = x.new_empty(plan.kept_bytes, dtype=torch.uint8) if keep else None
    plan.forward(x, out, kept)
    return out, kept


def _forward(x: Tensor, program: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    out, kept = _run(x, Program.parse(program), dim, keep)
    return out, kept if kept is not None else x.new_empty(0, dtype=torch.uint8)


def _run_backward(grad: Tensor, saved: Tensor, program: Program, dim: int, channels: int) -> Tensor:
    grad, saved = contiguous(grad), contiguous(saved)
    shape = torch.Size((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]))
    grad_x = grad.new_empty(shape)
    x, kept = (None, saved) if saved.dtype == torch.uint8 else (saved, None)
    plan = plan_for(program, grad.dtype, shape, dim)
    if grad.nbytes != plan.out_bytes or saved.nbytes != (plan.in_bytes if kept is None else plan.kept_bytes):
        raise ValueError(
            f"the backward of {program.spec} got a gradient of shape {tuple(grad.shape)} and a kept tensor of shape "
            f"{tuple(saved.shape)} and {saved.dtype}, which do not belong together; hooks must return what they were given"
        )
    plan.backward(grad, x, kept, grad_x)
    return grad_x


def _backward(grad: Tensor, saved: Tensor, program: str, dim: int, channels: int) -> Tensor:
    return _run_backward(grad, saved, Program.parse(program), dim, channels)


def _evaluate(x: Tensor, program: str, dim: int) -> Tensor:
    return evaluate(x, Program.parse(program), dim)


_library.impl("evaluate", _evaluate, "CompositeImplicitAutograd")
_library.impl("gates", _forward, "CPU")
_library.impl("gates_backward", _backward, "CPU")


# ------------------------------------------------------------------------------------------------ shapes without values


def _fake_forward(x: Tensor, program: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    parsed = Program.parse(program)
    kept = x.new_empty(_kept_bytes(x, parsed, dim) if keep else 0, dtype=torch.uint8)
    return x.new_empty(out_shape(parsed, x.shape, dim)), kept


def _fake_backward(grad: Tensor, saved: Tensor, _program: str, dim: int, channels: int) -> Tensor:
    like = saved if saved.is_meta else grad  # never an empty tensor with a memory: its numbers would be taken for the gradient
    return like.new_empty((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]), dtype=grad.dtype)


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
        return _transpose(towards, saved, program, ctx.dim), None, None, None, None
    higher = torch.is_grad_enabled()
    with torch.enable_grad():
        # names of their own in the graph, so that what grad owes to x is not counted here and by the caller
        x, g = (t.view_as(t) if t.requires_grad else t.detach().requires_grad_() for t in (saved, grad))
        (first,) = torch.autograd.grad(formula(x, program, ctx.dim), x, g, create_graph=True)
        to_grad, to_x = torch.autograd.grad(first, (g, x), towards, create_graph=higher, allow_unused=True)
    return to_grad, torch.zeros_like(x) if to_x is None else to_x, None, None, None


def _transpose(towards: Tensor, kept: Tensor, program: Program, dim: int) -> Tensor:
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
        if grad.layout is not torch.strided:
            grad = grad.to_dense()
        if _is_plain(grad) and _is_plain(saved) and not torch.is_grad_enabled():
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
