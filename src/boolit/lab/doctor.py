"""What of boolit is active on this machine, and why not where it is not."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

import torch

from boolit import __version__
from boolit._devices import automatic_device, available_devices
from boolit.lab.common.errors import EXTRAS
from boolit.lab.common.files import data_folder
from boolit.logic import cpu, gpu
from boolit.logic.kernels import training

Fact: TypeAlias = "str | int | bool | Mapping[str, str | None] | None"


@dataclass(frozen=True)
class Section:
    """Facts that belong together, by name, and what is amiss among them: one line each, with the fix."""

    name: str
    facts: Mapping[str, Fact]
    warnings: tuple[str, ...] = ()


def examine() -> list[Section]:
    """All sections. It changes nothing: no folder is made, no device initialised beyond asking whether it is there."""
    return [software(), kernel(cpu.status(), gpu.status()), devices(), extras(), data(data_folder())]


def software() -> Section:
    """Versions."""
    return Section(
        "software",
        {
            "boolit": __version__,
            "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            "torch": str(torch.__version__),
            "torch_threads": torch.get_num_threads(),
        },
    )


def kernel(status: cpu.KernelStatus, gpu: cpu.KernelStatus) -> Section:
    """The compiled kernels, and those for GPUs; without them every gate still works, by its formula."""
    facts: dict[str, Fact] = {
        "active": status.active,
        "reason": status.reason,
        "file": status.path,
        "instructions": status.instructions,
        "threads": status.threads,
        "threads_shared_with_torch": status.threads == torch.get_num_threads() if status.active else None,
        "interface": status.abi,
        "training": training.STATUS.reason,
        "cuda": f"{'active' if gpu.active else 'inactive'}: {gpu.reason}"
        if torch.cuda.is_available()
        else "no device for them",
        "BOOLIT_KERNELS": os.environ.get("BOOLIT_KERNELS"),
    }
    warnings = []
    if not status.active:
        warnings.append(f"the kernels are inactive, gates run by their slower formulas: {status.reason}")
    elif not training.STATUS.active:
        warnings.append(f"the kernels of training are inactive, the lab trains by slower formulas: {training.STATUS.reason}")
    if torch.cuda.is_available() and not gpu.active:
        warnings.append(f"the kernels for CUDA are inactive, gates run by their slower formulas: {gpu.reason}")
    return Section("kernels", facts, tuple(warnings))


def devices() -> Section:
    """Accelerators torch can use, and which device trains unless one is named."""
    here = {"here": ", ".join(available_devices()), "auto": automatic_device()}
    return Section("devices", {"cuda": _cuda(), "mps": _mps(), **here})


def _cuda() -> str:
    built = torch.version.cuda or torch.version.hip
    if built is None:
        return "no: this torch is built without it"
    if not torch.cuda.is_available():
        return f"no: torch has version {built}, but there is no device or driver for it"
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{', '.join(names)} (version {built})"


def _mps() -> str:
    if not torch.backends.mps.is_built():
        return "no: this torch is built without it"
    return "yes" if torch.backends.mps.is_available() else "no: torch has it, but this machine does not"


def extras() -> Section:
    """The packages of the optional features; a feature that is half installed is worth a warning."""
    versions: dict[str, dict[str, str | None]] = {
        extra: {package: _version(package) for package in packages} for extra, packages in EXTRAS.items()
    }
    warnings = [
        f"the packages for {extra} are incomplete: pip install {' '.join(absent)}"
        for extra, found in versions.items()
        if (absent := [package for package, version in found.items() if version is None]) and len(absent) < len(found)
    ]
    return Section("extras", versions, tuple(warnings))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def data(folder: Path) -> Section:
    """The folder downloaded data are kept in."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    facts: dict[str, Fact] = {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "free_gb": shutil.disk_usage(existing).free // 10**9,
        "BOOLIT_DATA": os.environ.get("BOOLIT_DATA"),
    }
    usable = existing.is_dir() and os.access(existing, os.W_OK)
    warning = f"data cannot be kept in {folder}, which is no folder one may write to; set BOOLIT_DATA to one that is"
    return Section("data", facts, () if usable else (warning,))
