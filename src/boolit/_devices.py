"""The devices that torch can compute on here, and the choice of one by name."""

from __future__ import annotations

import torch

AUTO = "auto"


def available_devices() -> list[str]:
    """Return the names of all devices, the CPU first.

    Example:
        >>> available_devices()[0]
        'cpu'
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return ["cpu"]
    count = torch.accelerator.device_count()
    return ["cpu", *(f"{accelerator.type}:{index}" if count > 1 else accelerator.type for index in range(count))]


def automatic_device() -> str:
    """Return the device that ``auto`` stands for: a CUDA or ROCm GPU if there is one, else the CPU.

    Apple's ``mps`` has no float64 and has not been tried yet, so it is never chosen unasked.
    """
    return "cuda" if any(name.startswith("cuda") for name in available_devices()) else "cpu"


def choose_device(name: str | torch.device = AUTO) -> torch.device:
    """Return the device with a name as torch writes them, or ``auto``.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
        >>> choose_device("cpu:7")
        Traceback (most recent call last):
        ValueError: there is no device 'cpu:7' here; torch can use cpu...
    """
    name = automatic_device() if str(name) == AUTO else name
    known = [torch.device(device) for device in available_devices()]
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):  # not a device name
        device = torch.device("meta")
    if (device.type, device.index or 0) not in [(known_device.type, known_device.index or 0) for known_device in known]:
        raise ValueError(f"there is no device {str(name)!r} here; torch can use {', '.join(available_devices())}")
    if device.type in ("cpu", "mps"):
        return torch.device(device.type)
    return device if device.index is not None else torch.device(device.type, torch.accelerator.current_device_index())


def device_name(device: torch.device) -> str:
    """Return a device as results name it: with the model of a CUDA GPU.

    Example:
        >>> device_name(torch.device("cpu"))
        'cpu'
    """
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
