"""What a benchmark of the gates found: the ratios it comes to, the bars they are held against, and all of it as JSON.

The JSON is the format of the files in benchmarks/results.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

import boolit
from boolit._devices import device_name
from boolit.lab.bench.settings import (
    CPU,
    PUBLISHED,
    REFERENCES,
    BenchSettings,
    CandidateKey,
    Direction,
    Style,
    TensorCase,
    program_of,
)
from boolit.lab.bench.timing import Timing
from boolit.lab.runs import JSON
from boolit.logic import cpu
from boolit.logic.vocabulary import OPERATIONS, approximate
from boolit.nn import Gate

FORMAT = 1  # of the JSON
SWITCHES = ("ATEN_CPU_CAPABILITY", "BOOLIT_INSTRUCTIONS", "BOOLIT_KERNELS", "OMP_NUM_THREADS")

# The bars boolit sets itself: as ratios of our time or memory to another's, each of them at most this.

CALLS: dict[Direction, float] = {"forward": 1.6, "forward+backward": 1.5}  # of a function on 8×8, against relu's
BITS_KEPT = 1 / 8  # bytes per input element, of an approximate gate


def time_bars(spec: str, rank: int = 2) -> dict[str, float]:
    """Bars on the time of forward and backward of a tensor with ``rank`` dimensions, by what it is compared with.

    Example:
        >>> time_bars("or_ail"), time_bars("or_ail", rank=4)
        ({'relu': 0.8, 'published': 0.05}, {'relu': 0.72, 'published': 0.05})
        >>> time_bars("xnor_nil")
        {'silu': 0.8, 'published': 0.1}
    """
    program = program_of(spec)
    if program is None:
        return {}
    kinds = {approximate(form) for _, form in program.members}
    if len(kinds) > 1:
        return {}
    xnor = any(OPERATIONS[name].base == "xnor" for name, _ in program.members)
    bars = {"published": 1 / 20 if kinds == {True} and not xnor else 1 / 10}
    if isinstance(boolit.activation(spec), Gate):
        if kinds == {True}:
            return {"relu": 0.8 if rank == 2 else 0.72} | bars
        return {"silu": 0.8 if xnor else 0.7} | bars
    three = {("or", "ail"), ("and", "ail"), ("xnor", "ail")}
    return ({"silu": 0.9} if program.strategy == "d" and set(program.members) == three else {}) | bars


def call_bar(spec: str, style: Style, direction: Direction) -> float | None:
    """The bar on the time of a small call of a function against relu's; those of modules are measured only."""
    return CALLS[direction] if style == "function" and program_of(spec) else None


def kept_bar(spec: str, itemsize: int) -> float | None:
    """The bar on the bytes kept for backward per input element: one bit for an approximate gate, the input for an exact one."""
    module = boolit.activation(spec)
    if not isinstance(module, Gate):
        return None
    return BITS_KEPT if approximate(module.form) else float(itemsize)


@dataclass(frozen=True)
class Ratio:
    """Our time as a multiple of another's; ``paired`` is the same formed round by round."""

    spec: str
    against: str
    value: float
    paired: float
    bar: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is within its bar, if it has one."""
        return None if self.bar is None else self.value <= self.bar

    def to_json(self) -> dict[str, JSON]:
        """As plain JSON."""
        return {
            "spec": self.spec,
            "against": self.against,
            "ratio": self.value,
            "paired_ratio": self.paired,
            "bar": self.bar,
            "met": self.met,
        }


@dataclass(frozen=True)
class TimingGroup:
    """Candidates timed against each other in one round robin, on one tensor or (``call``) on one too small to matter."""

    case: TensorCase
    direction: Direction
    timings: Mapping[CandidateKey, Timing]
    style: Style = "module"
    call: bool = False
    barred: bool = True  # whether times are held against bars

    @property
    def specs(self) -> list[str]:
        """What of ours was timed."""
        return [key.name for key in self.timings if key.maker == "boolit"]

    def ratios(self, spec: str) -> dict[str, Ratio]:
        """Ours to each of the others, by the name of the other: a reference, ``published`` or ``compiled``."""
        others: dict[str, CandidateKey] = {name: CandidateKey("torch", name) for name in REFERENCES}
        others |= {"published": CandidateKey("published", spec), "compiled": CandidateKey("compiled", spec)}
        timing, bars = self.timings[CandidateKey("boolit", spec)], self._bars(spec)
        return {
            name: Ratio(spec, name, timing.ratio(other), timing.paired_ratio(other), bars.get(name))
            for name, key in others.items()
            if (other := self.timings.get(key))
        }

    def times_json(self) -> list[dict[str, JSON]]:
        """Times in seconds, one entry per candidate."""
        return [
            {
                **self._place_json(),
                "maker": key.maker,
                "name": key.name,
                "minimum": timing.minimum,
                "median": timing.median,
                "samples": len(timing.rounds),
            }
            for key, timing in self.timings.items()
        ]

    def ratios_json(self) -> list[dict[str, JSON]]:
        """Ratios of ours to each of the others, one entry each."""
        return [{**self._place_json(), **ratio.to_json()} for spec in self.specs for ratio in self.ratios(spec).values()]

    def _place_json(self) -> dict[str, JSON]:
        kind = "call" if self.call else "tensor"
        return {"kind": kind, "shape": self.case.shape, "dim": self.case.dim, "style": self.style, "direction": self.direction}

    def _bars(self, spec: str) -> dict[str, float]:
        if not self.barred:
            return {}
        if self.call:
            bar = call_bar(spec, self.style, self.direction)
            return {} if bar is None else {"relu": bar}
        return time_bars(spec, len(self.case.shape)) if self.direction == "forward+backward" else {}


@dataclass(frozen=True)
class GatesResult:
    """Everything a run of ``boolit bench gates`` found; ``kept`` is in bytes per input element."""

    stamp: Mapping[str, JSON]
    settings: BenchSettings
    groups: Sequence[TimingGroup]
    kept: Mapping[TensorCase, Mapping[CandidateKey, float]]
    skipped: Mapping[str, str]

    def worst_kept(self, key: CandidateKey) -> float | None:
        """The most a candidate keeps in any of the cases; None if it was in none."""
        return max((kept[key] for kept in self.kept.values() if key in kept), default=None)

    def kept_bar(self, spec: str) -> float | None:
        """What it may keep."""
        return kept_bar(spec, self.settings.dtype.itemsize)

    def verdicts(self) -> list[bool]:
        """Whether each bar is met, over all that was measured."""
        ratios = [ratio for group in self.groups for spec in group.specs for ratio in group.ratios(spec).values()]
        timed = [ratio.met for ratio in ratios if ratio.met is not None]
        kept = [(self.worst_kept(CandidateKey("boolit", spec)), self.kept_bar(spec)) for spec in self.settings.specs]
        return timed + [most <= bar for most, bar in kept if most is not None and bar is not None]

    def disturbance(self) -> float:
        """How far the two ways to form a ratio are apart, as a share of it, for the median of our ratios to torch's."""
        ratios = [ratio for group in self.groups for spec in group.specs for ratio in group.ratios(spec).values()]
        apart = sorted(abs(ratio.paired / ratio.value - 1) for ratio in ratios if ratio.against in REFERENCES)
        return apart[len(apart) // 2] if apart else 0.0

    def to_json(self) -> dict[str, JSON]:
        """Stamp, settings, then flat lists: times in seconds, ratios of ours to another's, bytes kept per input element."""
        settings = self.settings
        return {
            "benchmark": "gates",
            "format": FORMAT,
            "stamp": self.stamp,
            "settings": {
                "shapes": [case.shape for case in settings.cases],
                "dims": [case.dim for case in settings.cases],
                "specs": settings.specs,
                "repeats": settings.repeats,
                "dtype": str(settings.dtype).removeprefix("torch."),
                "compiled": settings.compiled,
                "device": str(settings.device),
            },
            "times": [entry for group in self.groups for entry in group.times_json()],
            "ratios": [entry for group in self.groups for entry in group.ratios_json()],
            "kept": [self._kept_json(case, key) for case, kept in self.kept.items() for key in kept],
            "skipped": self.skipped,
            "bars": {"met": sum(self.verdicts()), "all": len(self.verdicts())},
        }

    def _kept_json(self, case: TensorCase, key: CandidateKey) -> dict[str, JSON]:
        amount = self.kept[case][key]
        bar = self.kept_bar(key.name) if key.maker == "boolit" else None
        return {
            "shape": case.shape,
            "dim": case.dim,
            "maker": key.maker,
            "name": key.name,
            "bytes": amount,
            "bar": bar,
            "met": None if bar is None else amount <= bar,
        }


# Where, when and with what a benchmark was run.


def stamp(device: torch.device = CPU) -> dict[str, JSON]:
    """Everything a reader needs to judge the numbers: no path and no name of the machine."""
    status = cpu.status()
    gpu_status = kernels.gpu_status() if device.type == "cuda" else None
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "boolit": boolit.__version__,
        "torch": str(torch.__version__),
        "published": _published_version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device_name(device),
        "gpu_kernels": gpu_status.reason if gpu_status else None,
        "gpu_kernels_active": gpu_status.active if gpu_status else None,
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
