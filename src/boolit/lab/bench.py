"""The speed of activations next to ReLU and SiLU of torch, as ratios of interleaved measurements.

Every candidate is called once in every round, in a random order, so that all meet the same machine. A ratio is that of the
fastest rounds, since whatever else runs only adds time; the quartiles of the ratios within a round tell how noisy it was.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

import boolit
from boolit._devices import choose_device
from boolit.errors import UserError, user_input

DEFAULT_SPECS = ("or_ail", "and_ail", "xnor_ail", "or_il", "and_il", "xnor_il", "or_and_xnor_ail_d")
DEFAULT_SHAPES = ("1024x1024", "64x64x32x32")
SMALL = "8x8"  # where the call itself is what costs
REFERENCES: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU}
DIRECTIONS = ("forward", "forward+backward")
# Bars for forward and backward by spec: a reference and the largest ratio to it, with AVX2 on the default shapes.
BARS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("or_ail", "and_ail", "xnor_ail"), ("relu", 0.8)),
    **dict.fromkeys(("or_il", "and_il"), ("silu", 0.7)),
    "xnor_il": ("silu", 0.8),
    "or_and_xnor_ail_d": ("silu", 0.9),
}
CALL_BAR = 2.0  # times relu, for a module's call on 8×8
WARM_UP = 3


@dataclass(frozen=True)
class Ratio:
    """Time of an activation relative to a reference, in one direction on one shape."""

    spec: str
    shape: str
    direction: str
    reference: str
    ratio: float
    low: float
    high: float
    bar: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the bar is met; None if there is none."""
        return None if self.bar is None else self.ratio <= self.bar


@dataclass(frozen=True)
class Speeds:
    """Result of a benchmark."""

    machine: dict[str, str | int | None]
    ratios: tuple[Ratio, ...]

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return {"machine": self.machine, "ratios": [asdict(ratio) for ratio in self.ratios]}


def measure_speeds(
    specs: Sequence[str] = DEFAULT_SPECS,
    shapes: Sequence[str] = DEFAULT_SHAPES,
    dtype: str = "float32",
    rounds: int = 25,
    device: str = "cpu",
    threads: int | None = None,
    on_round: Callable[[], object] = lambda: None,
) -> Speeds:
    """Measure activations next to ReLU and SiLU.

    Args:
        specs: Activations to measure.
        shapes: Sizes of tensors, such as ``64x64x32x32``. Channels lie along dimension 1.
        dtype: Name of a floating-point type.
        rounds: Rounds of measurements.
        device: Name of the device.
        threads: Threads of torch. Defaults to the present number.
        on_round: Called after every round.
    """
    with user_input():
        place = choose_device(device)
        modules = {spec: boolit.activation(spec, dim=1) for spec in specs}
        inputs = {shape: _input(shape, modules, dtype, place) for shape in shapes}
    ratios: list[Ratio] = []
    with _threads(threads):
        for shape, x in {**inputs, SMALL: torch.randn(8, 8, device=place)}.items():
            fitting = {spec: module for spec, module in modules.items() if x.shape[1] % module.width_multiple == 0}
            candidates: dict[str, nn.Module] = {name: make() for name, make in REFERENCES.items()} | fitting
            for direction in DIRECTIONS:
                calls = {name: _call(module, x, direction) for name, module in candidates.items()}
                seconds = interleave(calls, rounds, 300 if shape == SMALL else 1, place, on_round)
                ratios += [
                    _ratio(spec, shape, direction, reference, seconds)
                    for spec in fitting
                    for reference in REFERENCES
                    if spec != reference
                ]
        kernels = boolit.logic.cpu.status()
        machine: dict[str, str | int | None] = {
            "torch": torch.__version__,
            "device": str(place),
            "threads": torch.get_num_threads(),
            "torch_instructions": torch.backends.cpu.get_cpu_capability(),
            "boolit_instructions": kernels.instructions,
            "dtype": dtype,
            "rounds": rounds,
        }
    return Speeds(machine, tuple(ratios))


def interleave(
    calls: dict[str, Callable[[], object]], rounds: int, repeats: int, device: torch.device, on_round: Callable[[], object]
) -> dict[str, list[float]]:
    """Return the seconds of every call by round: the mean of ``repeats`` calls in a row."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    with _without_garbage_collection():
        for number in range(-WARM_UP, rounds):
            for name in order.sample(list(calls), len(calls)):
                call = calls[name]
                _synchronize(device)
                start = time.perf_counter()
                for _ in range(repeats):
                    call()
                _synchronize(device)
                if number >= 0:
                    seconds[name].append((time.perf_counter() - start) / repeats)
            on_round()
    return seconds


def _call(module: nn.Module, x: Tensor, direction: str) -> Callable[[], object]:
    if direction == "forward":
        with torch.no_grad():
            module(x)

        def forward() -> None:
            with torch.no_grad():
                module(x)

        return forward
    leaf = x.clone().requires_grad_()
    gradient = torch.randn_like(module(leaf))

    def backward() -> None:
        leaf.grad = None
        module(leaf).backward(gradient)

    return backward


def _ratio(spec: str, shape: str, direction: str, reference: str, seconds: dict[str, list[float]]) -> Ratio:
    ratios = [ours / theirs for ours, theirs in zip(seconds[spec], seconds[reference], strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    fastest = min(seconds[spec]) / min(seconds[reference])
    bar = None
    if shape == SMALL:
        bar = CALL_BAR if reference == "relu" and boolit.activation(spec).channels == (2, 1) else None
    elif shape in DEFAULT_SHAPES and direction == "forward+backward" and BARS.get(spec, ("", 0.0))[0] == reference:
        bar = BARS[spec][1]
    return Ratio(spec, shape, direction, reference, fastest, low, high, bar)


def _input(shape: str, modules: dict[str, boolit.nn.Activation], dtype: str, device: torch.device) -> Tensor:
    sizes = shape.split("x")
    if len(sizes) < 2 or not all(size.isdecimal() and int(size) for size in sizes):
        raise UserError(f"shape {shape!r} is not a list of at least two sizes such as 1024x1024")
    for module in modules.values():
        module.out_features(int(sizes[1]))
    return torch.randn(*map(int, sizes), device=device).to(getattr(torch, dtype))


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
