"""A result as plain JSON: the format of the files in benchmarks/results."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import torch

from boolit import __version__
from boolit.lab.bench.result import Group, Ratio, Result
from boolit.lab.bench.settings import PUBLISHED, Key
from boolit.lab.runs import JSON
from boolit.logic import kernels

# Where, when and with what a benchmark was run.

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


FORMAT = 1


def record(result: Result) -> dict[str, JSON]:
    """Stamp, settings, then flat lists: times in seconds, ratios of ours to another's, bytes kept an input element."""
    settings = result.settings
    return {
        "benchmark": "gates",
        "format": FORMAT,
        "stamp": result.stamp,
        "settings": {
            "shapes": [case.shape for case in settings.cases],
            "dims": [case.dim for case in settings.cases],
            "specs": settings.specs,
            "repeats": settings.repeats,
            "dtype": str(settings.dtype).removeprefix("torch."),
            "compiled": settings.compiled,
        },
        "times": [entry for group in result.groups for entry in _times(group)],
        "ratios": [entry for group in result.groups for entry in _ratios(group)],
        "kept": _kept(result),
        "skipped": result.skipped,
        "bars": {"met": sum(result.verdicts()), "all": len(result.verdicts())},
    }


def _place(group: Group) -> dict[str, JSON]:
    kind = "call" if group.call else "tensor"
    return {"kind": kind, "shape": group.case.shape, "dim": group.case.dim, "style": group.style, "direction": group.direction}


def _times(group: Group) -> list[dict[str, JSON]]:
    return [
        {
            **_place(group),
            "maker": key.maker,
            "name": key.name,
            "minimum": timing.minimum,
            "median": timing.median,
            "samples": len(timing.rounds),
        }
        for key, timing in group.timings.items()
    ]


def _ratios(group: Group) -> list[dict[str, JSON]]:
    return [{**_place(group), **_ratio(ratio)} for spec in group.specs for ratio in group.ratios(spec).values()]


def _ratio(ratio: Ratio) -> Mapping[str, JSON]:
    return {
        "spec": ratio.spec,
        "against": ratio.against,
        "ratio": ratio.value,
        "paired_ratio": ratio.paired,
        "bar": ratio.bar,
        "met": ratio.met,
    }


def _kept(result: Result) -> list[JSON]:
    return [
        {
            "shape": case.shape,
            "dim": case.dim,
            "maker": key.maker,
            "name": key.name,
            "bytes": amount,
            **_judged(result, key, amount),
        }
        for case, kept in result.kept.items()
        for key, amount in kept.items()
    ]


def _judged(result: Result, key: Key, amount: float) -> dict[str, JSON]:
    bar = result.kept_bar(key.name) if key.maker == "boolit" else None
    return {"bar": bar, "met": None if bar is None else amount <= bar}
