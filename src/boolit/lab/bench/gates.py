"""``boolit bench gates``: the gates' time and memory next to other people's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from boolit.lab.bench import settings as who
from boolit.lab.bench.record import stamp
from boolit.lab.bench.result import Group, Result
from boolit.lab.bench.settings import DIRECTIONS, Candidate, Case, Direction, Key, Settings, Style
from boolit.lab.bench.timing import WARM_UP, Task, Timing, bytes_kept, interleave

SLOW_STRIDE = 12  # the published package and compiled formulas would take nine tenths of the run if they had every round
SMALL = 8  # rows and channels of a tensor whose activation is all overhead
SMALL_CALLS = 20  # calls a sample, as one is near the clock's own time
SMALL_WEIGHT = 2**17  # how many numbers of a big tensor take as long as such a sample, for the progress bar

Report = Callable[[str, float], object]


@dataclass
class _Bench:
    """A run under way: what it was asked, whom it tells how far it is, and what it had to leave out."""

    settings: Settings
    report: Report
    skipped: dict[str, str] = field(default_factory=dict)
    inputs: dict[tuple[tuple[int, ...], bool], Tensor] = field(default_factory=dict)

    def input(self, shape: Sequence[int], requires_grad: bool = True) -> Tensor:
        """Standard normal numbers, the same for every candidate of that shape; other ones for gradients."""
        key = (tuple(shape), requires_grad)
        if key not in self.inputs:
            numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(int(requires_grad))).to(self.settings.dtype)
            self.inputs[key] = numbers.requires_grad_(requires_grad)
        return self.inputs[key]


def _silent(_label: str, _share: float) -> None:
    """Nobody asks how far it is."""


def run(settings: Settings, report: Report = _silent, threads: int | None = None) -> Result:
    """Measures everything; ``report`` gets a label and the share of the whole that has just been done, between rounds."""
    bench = _Bench(settings, report)
    with _threads(threads):
        stamped = stamp()
        groups: list[Group] = []
        kept = {}
        for case in settings.cases:
            present, kept[case] = _try_out(bench, case, _candidates(bench, case.dim))
            groups += [_big(bench, case, present, direction) for direction in DIRECTIONS]
            bench.inputs.clear()
    with _threads(1):  # gelu's would wait for each other even over 64 numbers
        modules = [*who.ours(settings.specs, -1), *who.references(-1)]
        functions = [*who.our_functions(settings.specs), *who.reference_functions()]
        groups += [_small(bench, modules, "module", direction) for direction in DIRECTIONS]
        groups += [_small(bench, functions, "function", direction) for direction in DIRECTIONS]
    return Result(stamped, settings, groups, kept, bench.skipped)


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """That many threads for torch, and so for our kernels, which share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------------------------------------ who takes part


def _candidates(bench: _Bench, dim: int) -> list[Candidate]:
    specs = bench.settings.specs
    found = [*who.ours(specs, dim), *who.references(dim)]
    try:
        found += who.published(specs, dim)
    except ImportError:
        bench.skipped["published"] = f"not installed; pip install {who.PUBLISHED}==1.0.0"
    return found + (who.compiled(specs, dim) if bench.settings.compiled else [])


def _try_out(bench: _Bench, case: Case, found: Iterable[Candidate]) -> tuple[list[Candidate], dict[Key, float]]:
    """Those that work on the case, each called once in each direction, and what they keep in bytes an element.

    Another's candidate may fail for its own reasons (a type it does not know, no compiler): it is left out with the reason.
    """
    present, kept = [], {}
    x = bench.input(case.shape)
    for candidate in found:
        bench.report(f"{case}: trying {' '.join(candidate.key)}", 0)
        try:
            amount = bytes_kept(candidate.function, x) / x.numel()
            for direction in DIRECTIONS:
                with torch.set_grad_enabled(direction != "forward"):
                    _task(bench, candidate, x, direction).call()
        except Exception as error:
            if candidate.key.maker == "boolit":
                raise
            _skip(bench, candidate.key, error)
        else:
            present.append(candidate)
            kept[candidate.key] = amount
    return present, kept


def _skip(bench: _Bench, key: Key, error: Exception) -> None:
    lines = [type(error).__name__, *str(error).split("\n")]
    bench.skipped[" ".join(key)] = " ".join(line.strip() for line in lines[:3]).strip()


# ------------------------------------------------------------------------------------------------ what is timed


def _task(bench: _Bench, candidate: Candidate, x: Tensor, direction: Direction) -> Task[Key]:
    """One call; the gradient it starts from is made beforehand, and the one it leaves is gone before the next."""
    function = candidate.function
    stride = SLOW_STRIDE if candidate.key.maker in ("published", "compiled") else 1
    if direction == "forward":
        return Task(candidate.key, lambda: function(x), stride=stride)
    with torch.no_grad():
        gradient = bench.input(function(x).shape, requires_grad=False)

    def forget() -> None:
        x.grad = None

    def call() -> None:
        x.grad = None  # here too, for samples of several calls
        function(x).backward(gradient)

    return Task(candidate.key, call, forget, stride)


def _big(bench: _Bench, case: Case, present: list[Candidate], direction: Direction) -> Group:
    x = bench.input(case.shape)
    tasks = [_task(bench, candidate, x, direction) for candidate in present]
    timings = _timed(bench, tasks, direction, f"{case}: {direction}", weight=x.numel())
    return Group(case, direction, timings)


def _small(bench: _Bench, found: list[Candidate], style: Style, direction: Direction) -> Group:
    tasks = [_task(bench, candidate, bench.input(_small_shape(candidate)), direction) for candidate in found]
    timings = _timed(bench, tasks, direction, f"{SMALL}×{SMALL} {style}: {direction}", SMALL_WEIGHT, SMALL_CALLS)
    return Group(Case((SMALL, SMALL), -1), direction, timings, style, call=True)


def _small_shape(candidate: Candidate) -> tuple[int, int]:
    """8×8, or a little wider where 8 channels do not divide."""
    return SMALL, candidate.divisor * -(-SMALL // candidate.divisor)


def _timed(
    bench: _Bench, tasks: list[Task[Key]], direction: Direction, label: str, weight: int, calls: int = 1
) -> dict[Key, Timing]:
    rounds = bench.settings.repeats
    share = _weight(weight, direction) / _whole(bench.settings) / (rounds + WARM_UP)
    with torch.set_grad_enabled(direction != "forward"):
        return interleave(tasks, rounds, calls, after_round=lambda: bench.report(label, share))


def _weight(numbers: int, direction: Direction) -> int:
    return numbers if direction == "forward" else 3 * numbers  # a backward takes about twice its forward


def _whole(settings: Settings) -> int:
    sizes = [math.prod(case.shape) for case in settings.cases] + [SMALL_WEIGHT] * 2
    return sum(_weight(size, direction) for size in sizes for direction in DIRECTIONS)
