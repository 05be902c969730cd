"""A device named ``standin``, beside the CPU: its tensors are refused where they meet the CPU's, as those of a GPU are.

torch has a place for a device of one's own, PrivateUse1. Its tensors here lie in the CPU's memory: DLPack passes memory on
with a note of whose it is, and the note is changed. Every operator computes on the CPU over that same memory, so a training
has the CPU's own numbers to the last bit; but it gets there only if all operands are on the device, 0-dimensional ones
excepted, as for CUDA. Indices are refused, too, where CUDA would fetch them. ``transfers`` counts what is fetched or sent.

It is registered once and for all by importing this file, which ``boolit --plugin`` does as well.
"""

import ctypes
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "standin"
ON_CPU, ON_EXTENSION = 1, 12  # DLPack's kDLCPU and kDLExtDev, the latter torch's PrivateUse1
CPU = torch.device("cpu")
aten = torch.ops.aten
# Copies to the CPU, copies from it, and numbers read by Python; the same object however often this file is imported.
transfers: Counter[str] = getattr(getattr(torch, NAME, None), "transfers", Counter())

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def same_memory(values: Tensor, owner: int) -> Tensor:
    """A tensor over the same memory that says to be on another device."""
    capsule = torch._C._to_dlpack(values)
    # A DLManagedTensor begins with the address of the data, then type and number of the device.
    ctypes.c_int32.from_address(_pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)).value = owner
    return torch._C._from_dlpack(capsule)


def compute_on_cpu(operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """What an operator makes of the device's tensors; views and results in place share memory as they would on the CPU."""
    ours: dict[int, tuple[Tensor, Tensor]] = {}  # what stands for each tensor of the device
    copies = operator is aten._copy_from.default

    def on_cpu(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.device.type == NAME:
                # One without elements may be for a result, and then must have memory that can grow.
                own = same_memory(value, ON_CPU) if value.numel() else torch.empty(value.shape, dtype=value.dtype)
                ours[id(own)] = own, value
                return own
            if value.dim() and not copies:
                raise RuntimeError(f"{operator} has operands on {NAME} and on {value.device}")
        elif isinstance(value, (list, tuple)):
            return [on_cpu(each) for each in value]
        return CPU if isinstance(value, torch.device) else value

    def on_device(value: Any) -> Any:
        if isinstance(value, Tensor):
            return ours[id(value)][1] if id(value) in ours else same_memory(value, ON_EXTENSION)
        return type(value)(map(on_device, value)) if isinstance(value, (list, tuple)) else value

    args, kwargs = on_cpu(args), {name: on_cpu(value) for name, value in kwargs.items()}
    if copies:
        return _copy(args[0], args[1], ours)
    transfers["read"] += operator is aten._local_scalar_dense.default
    # A number in the place of a tensor, which torch makes of Python's own, is for another overload.
    wanted = [argument.type.kind() for argument in operator._schema.arguments[: len(args)]]
    number = any(type(value) in (int, float) for value, kind in zip(args, wanted, strict=True) if kind == "TensorType")
    result = (operator.overloadpacket if number else operator)(*args, **kwargs)
    for own, value in ours.values():
        if own.numel() and not value.numel():
            value.data = same_memory(own, ON_EXTENSION)
    return on_device(result)


def _copy(source: Tensor, target: Tensor, ours: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
    if id(source) not in ours:
        transfers["from the CPU"] += 1
    if id(target) not in ours:
        transfers["to the CPU"] += 1
    target.copy_(source)
    return ours[id(target)][1] if id(target) in ours else target


def _convolution(*args: object) -> object:
    return compute_on_cpu(aten.convolution.default, *args)


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *others: object) -> object:
    return compute_on_cpu(aten.convolution_backward.default, gradient, x, weight, [weight.shape[0]], *others)


def _layer_norm(*args: object) -> object:
    return compute_on_cpu(aten.native_layer_norm.default, *args)


class _Module(_DummyBackendModule):
    """What torch asks of a device's module, ``torch.standin``."""

    transfers = transfers

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


if torch._C._get_privateuse1_backend_name() != NAME:
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library = torch.library.Library("_", "IMPL")
    library.fallback(compute_on_cpu, "PrivateUse1")
    of_torch = torch.library.Library("aten", "IMPL")  # what torch has a kernel of its own for on all devices
    of_torch.impl("native_layer_norm", _layer_norm, "PrivateUse1")
    of_torch.impl("convolution_overrideable", _convolution, "PrivateUse1")
    of_torch.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
