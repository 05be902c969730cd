"""Time of activations relative to ReLU and SiLU of torch.

Every candidate is timed once in every round. The halves of a round are shuffled separately, so that other candidates run
between two calls of the same one and it does not find its tensors in the cache. A ratio compares the fastest rounds, because
other programs can only add time. The quartiles of the ratios within a round show the noise.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.benchmark import timer

import boolit
from boolit._devices import choose_device
from boolit.errors import UserError, user_input
from boolit.lab.common.devices import torch_threads

DEFAULT_SPECS = ("or_ail", "and_ail", "xnor_ail", "or_il", "and_il", "xnor_il", "or_and_xnor_ail_d")
DEFAULT_SHAPES = ("1024x1024", "64x64x32x32")
SMALL = "8x8"  # the overhead of a call dominates
REFERENCES: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU}
# Limits for forward and backward by spec: a reference and the largest ratio to it, with AVX2 on the default shapes.
BARS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("or_ail", "and_ail", "xnor_ail"), ("relu", 0.8)),
    **dict.fromkeys(("or_il", "and_il"), ("silu", 0.7)),
    "xnor_il": ("silu", 0.8),
    "or_and_xnor_ail_d": ("silu", 0.9),
}
CALL_BAR = 2.0  # times ReLU, for a module called on 8×8
WARM_UP = 3  # rounds before the first that counts


@dataclass(frozen=True)
class Ratio:
    """Time of an activation relative to a reference: of the fastest rounds, and its quartiles."""

    spec: str
    shape: str
    direction: str
    reference: str
    ratio: float
    low: float
    high: float
    bar: float | None = None


def measure_speeds(
    specs: Sequence[str], shapes: Sequence[str], dtype: str, rounds: int, device: str = "cpu", threads: int | None = None
) -> tuple[dict[str, str | int | None], list[Ratio]]:
    """Measure activations next to ReLU and SiLU.

    Args:
        specs: Activations to measure.
        shapes: Shapes of tensors, such as ``64x64x32x32``. Channels lie along dimension 1.
        dtype: Name of a floating-point type.
        rounds: Number of rounds.
        device: Name of the device.
        threads: Threads of torch. Defaults to the current number.

    Returns:
        Facts about the machine, and the ratios.
    """
    with user_input():
        place = choose_device(device)
        modules = {spec: boolit.activation(spec, dim=1) for spec in specs}
        inputs = {shape: _input(shape, modules, dtype, place) for shape in shapes}
    ratios: list[Ratio] = []
    for shape, x in {**inputs, SMALL: torch.randn(8, 8, device=place)}.items():
        fitting = {spec: module for spec, module in modules.items() if x.shape[1] % module.width_multiple == 0}
        candidates: dict[str, nn.Module] = {name: make() for name, make in REFERENCES.items()} | fitting
        for direction, make_call in (("forward", _forward), ("forward+backward", _backward)):
            calls = {name: make_call(module, x) for name, module in candidates.items()}
            with torch_threads(threads):
                seconds = _interleave(calls, rounds, 300 if shape == SMALL else 1)
            pairs = [(spec, reference) for spec in fitting for reference in REFERENCES if spec != reference]
            ratios += [_ratio(spec, shape, direction, reference, seconds) for spec, reference in pairs]
    machine: dict[str, str | int | None] = {
        "torch": torch.__version__,
        "device": str(place),
        "threads": threads or torch.get_num_threads(),
        "torch_instructions": torch.backends.cpu.get_cpu_capability(),
        "boolit_instructions": boolit.logic.cpu.status().instructions,
        "dtype": dtype,
        "rounds": rounds,
    }
    return machine, ratios


def _interleave(calls: dict[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every call in each round after the warm-up: the mean of ``repeats`` calls in a row."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order, draw = list(calls), random.Random(0)
    half = len(order) // 2
    for number in range(-WARM_UP, rounds):
        order = draw.sample(order[:half], half) + draw.sample(order[half:], len(order) - half)
        for name in order:
            start = timer()  # waits for a GPU first
            for _ in range(repeats):
                calls[name]()
            end = timer()
            if number >= 0:
                seconds[name].append((end - start) / repeats)
    return seconds


def _forward(module: nn.Module, x: Tensor) -> Callable[[], object]:
    def call() -> None:
        with torch.no_grad():
            module(x)

    return call


def _backward(module: nn.Module, x: Tensor) -> Callable[[], object]:
    leaf = x.clone().requires_grad_()
    gradient = torch.randn_like(module(leaf))

    def call() -> None:
        leaf.grad = None
        module(leaf).backward(gradient)

    return call


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
