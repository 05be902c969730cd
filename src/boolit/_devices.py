"""The devices torch can compute on here, and the choice of one by its name."""

from __future__ import annotations

import torch

AUTO = "auto"


def available_devices() -> list[str]:
    """The names of all devices that are here, the CPU first.

    Example:
        >>> available_devices()[0]
        'cpu'
    """
    kinds = dict.fromkeys(("cpu", "cuda", "mps", "xpu", torch._C._get_privateuse1_backend_name()))
    counts = {kind: _count(kind) for kind in kinds}
    return [f"{kind}:{index}" if count > 1 else kind for kind, count in counts.items() for index in range(count)]


def automatic_device() -> str:
    """What ``auto`` stands for: a CUDA or ROCm GPU if there is one, else the CPU.

    Apple's ``mps`` has no float64 and nobody has tried boolit on it yet, so it is never chosen unasked.
    """
    return "cuda" if _count("cuda") else "cpu"


def choose_device(name: str | torch.device = AUTO) -> torch.device:
    """The device of a name, as torch writes them, or ``auto``.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
        >>> choose_device("cpu:7")
        Traceback (most recent call last):
        ValueError: there is no device 'cpu:7' here; torch can use cpu...
    """
    name = automatic_device() if str(name) == AUTO else name
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):  # no name of a device
        device = torch.device("meta")
    if (device.index or 0) >= _count(device.type):
        raise ValueError(f"there is no device {str(name)!r} here; torch can use {', '.join(available_devices())}")
    if device.type in ("cpu", "mps") or device.index is not None:
        return torch.device(device.type) if device.type == "cpu" else device
    return torch.device(device.type, torch.get_device_module(device).current_device())


def device_name(device: torch.device) -> str:
    """A device as a result names it: with the model of a GPU where torch knows it.

    Example:
        >>> device_name(torch.device("cpu"))
        'cpu'
    """
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def _count(kind: str) -> int:
    """How many devices of a kind there are; the kind ``meta`` computes nothing."""
    if kind in ("cpu", "meta"):
        return int(kind == "cpu")
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind, None)
    return module.device_count() if module is not None and module.is_available() else 0
