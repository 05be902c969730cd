"""``boolit bench gates``: the gates' time and memory next to other people's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from boolit.lab.bench import settings as candidates
from boolit.lab.bench.result import GatesResult, TimingGroup, stamp
from boolit.lab.bench.settings import DIRECTIONS, BenchSettings, Candidate, CandidateKey, Direction, Style, TensorCase
from boolit.lab.bench.timing import WARM_UP, GpuEvents, Stopwatch, TimedCall, Timing, WallClock, bytes_kept, interleave
from boolit.lab.common.parallel import torch_threads

SLOW_STRIDE = 12  # the published package and compiled formulas would take nine tenths of the run if they had every round
SMALL = 8  # rows and channels of a tensor whose activation is all overhead
SMALL_CALLS = 20  # calls a sample, as one is near the clock's own time
SMALL_WEIGHT = 2**17  # how many numbers of a big tensor take as long as such a sample, for the progress bar

OnProgress = Callable[[str, float], object]


@dataclass
class _Bench:
    """A run under way: what it was asked, whom it tells how far it is, and what it had to leave out."""

    settings: BenchSettings
    on_progress: OnProgress
    skipped: dict[str, str] = field(default_factory=dict)
    inputs: dict[tuple[tuple[int, ...], bool], Tensor] = field(default_factory=dict)

    def on_device(self) -> AbstractContextManager[object]:
        """Within it, a GPU's events and streams are those of the device that is measured."""
        return torch.cuda.device(self.settings.device) if self.settings.device.type == "cuda" else nullcontext()

    def watch(self, calls: int) -> Stopwatch:
        """One call's work, or what many calls cost whoever makes them."""
        if self.settings.device.type != "cuda":
            return WallClock()
        return GpuEvents(torch.cuda, self.settings.device) if calls == 1 else WallClock(wait=torch.cuda.synchronize)

    def input(self, shape: Sequence[int], requires_grad: bool = True) -> Tensor:
        """Standard normal numbers, the same for every candidate of that shape; other ones for gradients."""
        key = (tuple(shape), requires_grad)
        if key not in self.inputs:
            numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(int(requires_grad)))
            self.inputs[key] = numbers.to(self.settings.device, self.settings.dtype).requires_grad_(requires_grad)
        return self.inputs[key]


def measure_gates(
    settings: BenchSettings, on_progress: OnProgress = lambda *_: None, threads: int | None = None
) -> GatesResult:
    """Measures everything; ``on_progress`` gets a label and the share of the whole that has just been done, between rounds."""
    bench = _Bench(settings, on_progress)
    with bench.on_device(), torch_threads(threads):
        stamped = stamp(settings.device)
        groups: list[TimingGroup] = []
        kept = {}
        for case in settings.cases:
            present, kept[case] = _try_out(bench, case, _candidates(bench, case.dim))
            groups += [_time_tensor(bench, case, present, direction) for direction in DIRECTIONS]
            bench.inputs.clear()
    with bench.on_device(), torch_threads(1):  # gelu's would wait for each other even over 64 numbers
        modules = [*candidates.boolit_modules(settings.specs, -1), *candidates.torch_candidates("module")]
        functions = [*candidates.boolit_functions(settings.specs), *candidates.torch_candidates("function")]
        groups += [_time_small_calls(bench, modules, "module", direction) for direction in DIRECTIONS]
        groups += [_time_small_calls(bench, functions, "function", direction) for direction in DIRECTIONS]
    return GatesResult(stamped, settings, groups, kept, bench.skipped)


def _candidates(bench: _Bench, dim: int) -> list[Candidate]:
    specs = bench.settings.specs
    found = [*candidates.boolit_modules(specs, dim), *candidates.torch_candidates("module", dim)]
    try:
        found += candidates.published_modules(specs, dim)
    except ImportError:
        bench.skipped["published"] = f"not installed; pip install {candidates.PUBLISHED}==1.0.0"
    return found + (candidates.compiled_formulas(specs, dim) if bench.settings.compiled else [])


def _try_out(bench: _Bench, case: TensorCase, found: Iterable[Candidate]) -> tuple[list[Candidate], dict[CandidateKey, float]]:
    """Those that work on the case, each called once in each direction, and what they keep in bytes per element.

    Another's candidate may fail for its own reasons (a type it does not know, no compiler): it is left out with the reason.
    """
    present, kept = [], {}
    x = bench.input(case.shape)
    for candidate in found:
        bench.on_progress(f"{case}: trying {' '.join(candidate.key)}", 0)
        try:
            amount = bytes_kept(candidate.function, x) / x.numel()
            for direction in DIRECTIONS:
                with torch.set_grad_enabled(direction != "forward"):
                    _timed_call(bench, candidate, x, direction).call()
        except Exception as error:
            if candidate.key.maker == "boolit":
                raise
            lines = [type(error).__name__, *str(error).split("\n")]
            bench.skipped[" ".join(candidate.key)] = " ".join(line.strip() for line in lines[:3]).strip()
        else:
            present.append(candidate)
            kept[candidate.key] = amount
    return present, kept


def _timed_call(bench: _Bench, candidate: Candidate, x: Tensor, direction: Direction) -> TimedCall[CandidateKey]:
    """One call; the gradient it starts from is made beforehand, and the one it leaves is gone before the next."""
    function = candidate.function
    stride = SLOW_STRIDE if candidate.key.maker in ("published", "compiled") else 1
    if direction == "forward":
        return TimedCall(candidate.key, lambda: function(x), stride=stride)
    with torch.no_grad():
        gradient = bench.input(function(x).shape, requires_grad=False)

    def forget() -> None:
        x.grad = None

    def call() -> None:
        x.grad = None  # here too, for samples of several calls
        function(x).backward(gradient)

    return TimedCall(candidate.key, call, forget, stride)


def _time_tensor(bench: _Bench, case: TensorCase, present: list[Candidate], direction: Direction) -> TimingGroup:
    x = bench.input(case.shape)
    tasks = [_timed_call(bench, candidate, x, direction) for candidate in present]
    timings = _time(bench, tasks, direction, f"{case}: {direction}", weight=x.numel())
    return TimingGroup(case, direction, timings, barred=bench.settings.has_bars)


def _time_small_calls(bench: _Bench, found: list[Candidate], style: Style, direction: Direction) -> TimingGroup:
    widths = [candidate.divisor * -(-SMALL // candidate.divisor) for candidate in found]  # where 8 do not divide, more
    inputs = [bench.input((SMALL, width)) for width in widths]
    tasks = [_timed_call(bench, candidate, x, direction) for candidate, x in zip(found, inputs, strict=True)]
    timings = _time(bench, tasks, direction, f"{SMALL}×{SMALL} {style}: {direction}", SMALL_WEIGHT, SMALL_CALLS)
    return TimingGroup(TensorCase((SMALL, SMALL), -1), direction, timings, style, call=True, barred=bench.settings.has_bars)


def _time(
    bench: _Bench, tasks: list[TimedCall[CandidateKey]], direction: Direction, label: str, weight: int, calls: int = 1
) -> dict[CandidateKey, Timing]:
    rounds = bench.settings.repeats
    share = _weight(weight, direction) / _whole(bench.settings) / (rounds + WARM_UP)
    with torch.set_grad_enabled(direction != "forward"):
        return interleave(tasks, rounds, calls, bench.watch(calls), lambda: bench.on_progress(label, share))


def _weight(numbers: int, direction: Direction) -> int:
    return numbers if direction == "forward" else 3 * numbers  # a backward takes about twice its forward


def _whole(settings: BenchSettings) -> int:
    sizes = [math.prod(case.shape) for case in settings.cases] + [SMALL_WEIGHT] * 2
    return sum(_weight(size, direction) for size in sizes for direction in DIRECTIONS)
