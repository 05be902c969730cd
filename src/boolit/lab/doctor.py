"""What of boolit is active on this machine, and why the rest is not."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TypeAlias

import torch

from boolit import __version__
from boolit._devices import automatic_device, available_devices
from boolit.errors import EXTRAS
from boolit.logic import cpu

Fact: TypeAlias = "str | int | bool | Mapping[str, str | None] | None"


@dataclass(frozen=True)
class Section:
    """Facts by name, and warnings with their fixes."""

    name: str
    facts: Mapping[str, Fact]
    warnings: tuple[str, ...] = ()


def examine() -> list[Section]:
    """Return facts about software, kernels, devices, optional packages and the data folder. Nothing is changed."""
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    versions = {"boolit": __version__, "python": system, "torch": str(torch.__version__)}
    status = cpu.status()
    slow = f"the compiled kernels are inactive, so gates are slower: {status.reason}"
    return [
        Section("software", {**versions, "threads": torch.get_num_threads()}),
        Section("kernels", vars(status), () if status.active else (slow,)),
        Section("devices", {"available": ", ".join(available_devices()), "auto": automatic_device()}),
        _extras(),
        _data(),
    ]


def _extras() -> Section:
    installed = {(each.name or "").lower().replace("_", "-"): each.version for each in metadata.distributions()}
    versions = {extra: {package: installed.get(package) for package in packages} for extra, packages in EXTRAS.items()}
    return Section("extras", versions)


def _data() -> Section:
    try:
        from boolit.lab.common.files import data_folder
    except ModuleNotFoundError:  # the lab is not installed
        return Section("data", {"folder": None})
    folder = data_folder()
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    usable = existing.is_dir() and os.access(existing, os.W_OK)
    warning = f"{folder} cannot be written to; set BOOLIT_DATA to another folder"
    return Section("data", {"folder": str(folder)}, () if usable else (warning,))
