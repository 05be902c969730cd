"""Separate the arithmetic of a kernel from its memory traffic.

The same passes run on tensors of half a megabyte, which stay in the second-level cache, and of 16 megabytes, in one thread, by
processor time. The time of a call on a tiny tensor is subtracted. Time per element in the cache is arithmetic; what is added
outside is memory. Also prints the bytes that each pass must move.

    OMP_NUM_THREADS=1 python benchmarks/kernel_time.py
    OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=avx2 BOOLIT_INSTRUCTIONS=x86-64-v3 python benchmarks/kernel_time.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from boolit import activation

SHAPES = {
    "rows, cached": (128, 1024),
    "rows, memory": (4096, 1024),
    "images, cached": (4, 32, 32, 32),
    "images, memory": (64, 64, 32, 32),
}
NAMES = ("relu", "silu", "or_ail", "or_il", "xnor_il", "or_and_xnor_ail_d")
# Bytes per input element of float32: forward reads x and writes the output and the bits, backward reads the gradient and the
# saved tensor and writes the gradient of x.
BYTES = {"relu": (8, 12), "silu": (8, 12), "or_ail": (6.125, 6.125), "or_il": (6, 10), "xnor_il": (6, 10)}
BYTES["or_and_xnor_ail_d"] = (10.375, 10.375)


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats


def passes(name: str, x: Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return functions that run a forward and a backward pass."""
    function = activation(name, dim=1)
    y = function(x)
    gradient = torch.randn_like(y)
    return lambda: function(x), lambda: torch.autograd.grad(y, x, gradient, retain_graph=True)


def main(rounds: int = 15) -> None:
    """Print nanoseconds per input element: medians over rounds in which all activations take turns."""
    for title, shape in SHAPES.items():
        x = torch.randn(shape, requires_grad=True)
        tiny = torch.randn([2] * x.dim(), requires_grad=True)
        calls = {name: (*passes(name, x), *passes(name, tiny)) for name in NAMES}
        repeats = max(1, 2**22 // x.numel())
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(rounds):
            for name, both in calls.items():
                for i in range(2):
                    nanoseconds = (seconds(both[i], repeats) - seconds(both[i + 2], 50)) / x.numel() * 1e9
                    times.setdefault((name, i), []).append(nanoseconds)
        print(f"{title} {shape}: ns per element, forward + backward (bytes per element)")
        for name in NAMES:
            forward, backward = (statistics.median(times[name, i]) for i in range(2))
            print(f"  {name:18} {forward:.3f} + {backward:.3f}  ({BYTES[name][0]} + {BYTES[name][1]})")


if __name__ == "__main__":
    main()
