"""The torch operators, and the choice between kernel and formula.

``boolit::evaluate`` is what torch.fx and torch.jit.script write down: a name in front of `evaluate`, which makes the choice.
``boolit::gates``, ``boolit::gates_backward`` and ``boolit::gates_double_backward`` are opaque to torch.compile and known to
autograd, vmap and fake tensors; third derivatives are by formula.
An approximate gate keeps one bit per input element for its backward; an exact one keeps its input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.jit import is_tracing  # type: ignore[attr-defined]
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode, has_torch_function_unary

from boolit.logic.kernels import gpu, library
from boolit.logic.kernels.library import MOST_GATES, TYPES, KernelModule, KernelPlan, fits, out_shape
from boolit.logic.kernels.logits import check_logits, check_memory, contiguous, position, sizes, traced_quietly
from boolit.logic.program import Program
from boolit.logic.reference import formula
from boolit.logic.vocabulary import as_int

_SCHEMAS = (
    "evaluate(Tensor x, str program, int dim) -> Tensor",
    "gates(Tensor x, str program, int dim, bool keep) -> (Tensor, Tensor)",
    "gates_backward(Tensor grad, Tensor saved, str program, int dim, SymInt channels) -> Tensor",
    "gates_double_backward(Tensor towards, Tensor grad, Tensor x, str program, int dim) -> (Tensor, Tensor)",
)
_library = torch.library.Library("boolit", "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema)
_gates = torch.ops.boolit.gates.default
_gates_backward = torch.ops.boolit.gates_backward.default
_gates_double_backward = torch.ops.boolit.gates_double_backward.default


def evaluate(x: Tensor, program: Program, dim: int) -> Tensor:
    """The program's output along ``dim``: by kernel on CPU, CUDA and ROCm; elsewhere, in exports and torch.func by formula.

    Shape: ``(…, C, …)`` to ``(…, program.out_channels(C), …)``.
    """
    if not is_dynamo_compiling() and (out := call_kernel(x, dim, program)) is not None:
        return out
    return evaluate_first(x, program, dim, program)


def evaluate_first(x: Tensor, program: Program, dim: int, *what: object) -> Tensor:
    """The same for what `call_kernel` does not take: all but plain contiguous tensors, and those of a new shape.

    ``what`` is what the next call will be known by: objects that cannot change.
    """
    if not _is_plain(x) or not _has_kernel(program, x):
        return _evaluate_special(x, program, dim)
    axis = position(dim, x.shape)
    if not x.is_contiguous():
        check_memory(x)
        if (moved := x.movedim(axis, -1)).is_contiguous():  # channels_last
            return evaluate(moved, program, -1).movedim(-1, axis)
    plan = _plan_for(program, x, x.shape, axis)
    if library.LIBRARY is not None and type(dim) is int and not gpu.is_on_gpu(x):
        library.LIBRARY.remember(plan, dim, *what)
    if x.requires_grad and torch.is_grad_enabled():
        return cast(Tensor, _Gates.apply(x, plan))  # type: ignore[no-untyped-call]
    return _run(plan, x, keep=False)[0]


def _evaluate_special(x: Tensor, program: Program, dim: int) -> Tensor:
    """For all but plain tensors with kernels: tracers, transforms, subclasses, other devices, signs and zeros to be applied."""
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
    if _wants_formula() or not _has_kernel(program, x):
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


def _has_kernel(program: Program, x: Tensor) -> bool:
    """Whether there are kernels for this on the tensor's device."""
    if gpu.is_on_gpu(x):
        return x.dtype in TYPES and len(program.members) <= MOST_GATES and gpu.are_ready()
    return x.is_cpu and fits(program, x)


def _plan_for(program: Program, x: Tensor, shape: torch.Size, dim: int) -> KernelPlan:
    """The plan for tensors of the type and on the device of x, and of this shape."""
    if gpu.is_on_gpu(x):
        return gpu.plan_for(program, x.dtype, shape, dim)
    return library.plan_for(program, x.dtype, shape, dim)


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
            and (x.is_cpu or gpu.is_on_gpu(x))
            and not x.is_neg()
            and not x.is_nested
            and x.data_ptr() != 0  # a zero tensor and a functional one have no memory of their own
        )
    except RuntimeError:  # no address at all: sparse, of oneDNN, or left over from a transform
        return False


# ------------------------------------------------------------------------------------------------ the work


def _run(plan: KernelPlan, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
    x = contiguous(x)
    results = plan.forward(x, keep)
    if results is None:
        check_memory(x)
        raise _mismatch(plan, x)
    return results


def _run_backward(plan: KernelPlan, grad: Tensor, saved: Tensor) -> Tensor:
    grad, saved = contiguous(grad), contiguous(saved)
    grad_x = plan.backward(grad, saved)
    if grad_x is None:
        check_memory(grad)
        check_memory(saved)
        raise _mismatch(plan, grad, saved)
    return grad_x


def _mismatch(plan: KernelPlan, *tensors: Tensor) -> ValueError:
    found = " and ".join(f"one of shape {tuple(tensor.shape)} and {tensor.dtype}" for tensor in tensors)
    return ValueError(
        f"{plan.program.spec} along dim {plan.dim} got tensors that do not belong together: {found}; "
        "hooks must return what they were given"
    )


def _forward(x: Tensor, program: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    out, kept = _run(_plan_for(Program.parse(program), x, x.shape, dim), x, keep)
    return out, kept if kept is not None else x.new_empty(0, dtype=torch.uint8)


def _backward(grad: Tensor, saved: Tensor, program: str, dim: int, channels: int) -> Tensor:
    shape = torch.Size((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]))
    return _run_backward(_plan_for(Program.parse(program), grad, shape, dim), grad, saved)


def _double_backward(towards: Tensor, grad: Tensor, x: Tensor, program: str, dim: int) -> tuple[Tensor, Tensor]:
    towards, grad, x = contiguous(towards), contiguous(grad), contiguous(x)
    plan = library.plan_for(Program.parse(program), x.dtype, x.shape, dim)
    results = plan.double_backward(towards, grad, x)
    if results is None:
        for tensor in (towards, grad, x):
            check_memory(tensor)
        raise _mismatch(plan, towards, grad, x)
    return results


def _evaluate(x: Tensor, program: str, dim: int) -> Tensor:
    return evaluate(x, Program.parse(program), dim)


_library.impl("evaluate", _evaluate, "CompositeImplicitAutograd")
for _key in ("CPU", "CUDA"):
    _library.impl("gates", _forward, _key)
    _library.impl("gates_backward", _backward, _key)
_library.impl("gates_double_backward", _double_backward, "CPU")


# ------------------------------------------------------------------------------------------------ shapes without values


def _fake_forward(x: Tensor, program: str, dim: int, keep: bool) -> tuple[Tensor, Tensor]:
    parsed = Program.parse(program)
    kept_bytes = (gpu if gpu.is_on_gpu(x) else library).kept_bytes
    kept = x.new_empty(kept_bytes(parsed, x.shape, dim) if keep else 0, dtype=torch.uint8)
    return x.new_empty(out_shape(parsed, x.shape, dim)), kept


def _fake_backward(grad: Tensor, saved: Tensor, _program: str, dim: int, channels: int) -> Tensor:
    like = saved if saved.is_meta else grad  # never an empty tensor with a memory: its numbers would be taken for the gradient
    return like.new_empty((*grad.shape[:dim], channels, *grad.shape[dim + 1 :]), dtype=grad.dtype)


def _fake_double_backward(towards: Tensor, grad: Tensor, x: Tensor, _program: str, _dim: int) -> tuple[Tensor, Tensor]:
    like = next((tensor for tensor in (towards, grad, x) if tensor.is_meta), x)
    return like.new_empty(grad.shape), like.new_empty(x.shape)


torch.library.register_fake("boolit::gates", _fake_forward, lib=_library)
torch.library.register_fake("boolit::gates_backward", _fake_backward, lib=_library)
torch.library.register_fake("boolit::gates_double_backward", _fake_double_backward, lib=_library)


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
    if gpu.is_on_gpu(saved):
        higher = torch.is_grad_enabled()
        with torch.enable_grad():
            grad, x = _renamed(grad, saved)
            to_grad, to_x = _second_by_formula(towards, grad, x, program, ctx.dim, create_graph=higher)
    else:
        to_grad, to_x = _gates_double_backward(towards, grad, saved, ctx.program, ctx.dim)
    return to_grad, to_x, None, None, None


def _renamed(*tensors: Tensor) -> list[Tensor]:
    """The tensors by names of their own in the graph: what one owes to another is not counted here and by the caller."""
    return [tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in tensors]


def _second_by_formula(
    towards: Tensor, grad: Tensor, x: Tensor, program: Program, dim: int, create_graph: bool
) -> tuple[Tensor, ...]:
    """What ``towards`` gives to grad and to x."""
    (first,) = torch.autograd.grad(formula(x, program, dim), x, grad, create_graph=True)
    return torch.autograd.grad(first, (grad, x), towards, create_graph=create_graph, materialize_grads=True)


def _save_double_backward(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, str, int], output: tuple[Tensor, Tensor]) -> None:  # noqa: ARG001 (torch names it)
    *tensors, ctx.program, ctx.dim = inputs
    ctx.save_for_backward(*tensors)


def _differentiate_double_backward(
    ctx: Any, *towards: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
    """Third derivatives and all beyond, by formula."""
    higher = torch.is_grad_enabled()
    with torch.enable_grad():
        t, g, x = _renamed(*ctx.saved_tensors)
        second = _second_by_formula(t, g, x, Program.parse(ctx.program), ctx.dim, create_graph=True)
        used = [(result, toward) for result, toward in zip(second, towards, strict=True) if result.requires_grad]
        results, ways = zip(*used, strict=True)
        to_t, to_g, to_x = torch.autograd.grad(results, (t, g, x), ways, create_graph=higher, allow_unused=True)
    return to_t, to_g, to_x, None, None


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
torch.library.register_autograd(
    "boolit::gates_double_backward", _differentiate_double_backward, setup_context=_save_double_backward, lib=_library
)


class _Gates(torch.autograd.Function):
    """The same for plain tensors, without the dispatcher: half the cost of a small call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: KernelPlan) -> Tensor:
        out, kept = plan.forward(x, True) or _run(plan, x, True)
        ctx.plan = plan
        ctx.save_for_backward(x if kept is None else kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (saved,) = ctx.saved_tensors
        grad_x = ctx.plan.differentiate(grad, saved)
        return _differentiate_uncommon(ctx.plan, grad, saved) if grad_x is None else grad_x, None


def _differentiate_uncommon(plan: KernelPlan, grad: Tensor, saved: Tensor) -> Tensor:
    """What `KernelPlan.differentiate` does not do: other layouts, a graph of its own, tracers and subclasses."""
    if grad.layout is not torch.strided:
        grad = grad.to_dense()
    if _is_plain(grad) and _is_plain(saved) and not torch.is_grad_enabled():
        return _run_backward(plan, grad, saved)
    return cast(Tensor, _gates_backward(grad, saved, str(plan.program), plan.dim, plan.channels))


_EXCHANGE = getattr(Tensor, "__dlpack_c_exchange_api__", None)  # from torch 2.10 on; else the kernels ask for attributes


def connect(
    kernels: KernelModule, exchange: object = _EXCHANGE, empty_like: Callable[[Tensor], Tensor] = torch.empty_like
) -> None:
    """Gives the compiled module what it needs of torch."""
    kernels.connect(
        Tensor,
        Parameter,
        torch.UntypedStorage,
        exchange,
        (*TYPES, torch.uint8),
        empty_like,
        torch.is_grad_enabled,
        super(torch.autograd.Function, _Gates).apply,  # which takes no account of torch.func: these tensors are plain
        (_dispatch_modes, _transformed, _is_tracing),
        vars(forward_ad),
    )


def call_none(*_: object) -> None:
    """Where there are no kernels."""


call_kernel: Callable[..., Tensor | None] = call_none
if library.LIBRARY is not None:
    connect(library.LIBRARY)
    call_kernel = library.LIBRARY.evaluate


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
    grads, saveds = _batches(info, in_dims, grad, saved)
    if saved.dtype == torch.uint8:
        return torch.stack([_gates_backward(g, s, program, dim, channels) for g, s in zip(grads, saveds, strict=True)]), 0
    return _gates_backward(grads, saveds, program, dim + 1, channels), 0


def _vmap_double_backward(
    info: Any, in_dims: tuple[int | None, ...], towards: Tensor, grad: Tensor, x: Tensor, program: str, dim: int
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    return _gates_double_backward(*_batches(info, in_dims, towards, grad, x), program, dim + 1), (0, 0)


def _batches(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """The tensors with the mapped dimension first, those that lack it repeated."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        for tensor, axis in zip(tensors, in_dims, strict=False)
    ]


torch.library.register_vmap("boolit::gates", _vmap_forward, lib=_library)
torch.library.register_vmap("boolit::gates_backward", _vmap_backward, lib=_library)
torch.library.register_vmap("boolit::gates_double_backward", _vmap_double_backward, lib=_library)
