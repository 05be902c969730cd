"""Where, when and with what a benchmark was run."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

from boolit import __version__
from boolit.lab.bench.candidates import PUBLISHED
from boolit.lab.runs import JSON
from boolit.logic import kernels

SWITCHES = ("ATEN_CPU_CAPABILITY", "BOOLIT_INSTRUCTIONS", "BOOLIT_KERNELS", "OMP_NUM_THREADS")


def stamp() -> dict[str, JSON]:
    """Everything a reader needs to judge the figures; no path and no name of the machine."""
    status = kernels.status()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "boolit": __version__,
        "torch": str(torch.__version__),
        "published": _published_version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "kernels": status.reason,
        "kernels_active": status.active,
        "kernels_instructions": status.instructions,
        "torch_instructions": torch.backends.cpu.get_cpu_capability(),
        "environment": {name: os.environ.get(name) for name in SWITCHES},
    }


def cpu_model(file: Path = Path("/proc/cpuinfo")) -> str:
    """What the processor calls itself."""
    lines = file.read_text().splitlines() if file.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _published_version() -> str | None:
    try:
        return metadata.version(PUBLISHED)
    except metadata.PackageNotFoundError:
        return None
