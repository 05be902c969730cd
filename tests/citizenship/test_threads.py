"""Gates in many threads give what they give in one, also while a model is converted."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import torch
from torch import Tensor, nn

import boolit
from boolit.nn import convert

THREADS, CALLS = (int(os.environ.get(name, default)) for name, default in (("THREADS", "8"), ("CALLS", "60")))
SPECS = ("or_ail", "xnor_il", "and_nail_k3", "or_and_xnor_ail_d", "or_xnor_il_p")


def results(seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return outputs and gradients of calls with changing gates, types and shapes. All threads share the modules."""
    drawn, source = random.Random(seed), torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(CALLS):
        shape, dtype = (drawn.randint(1, 40), 12 * drawn.randint(1, 9)), drawn.choice([torch.float32, torch.float64])
        x = torch.randn(shape, generator=source).to(dtype).requires_grad_()
        out = MODULES[drawn.randrange(len(MODULES))](x)
        pairs.append((out.detach(), torch.autograd.grad(out.square().sum(), x)[0]))
    return pairs


MODULES = [boolit.activation(spec, dim=-1) for spec in SPECS]


def test_many_threads_and_a_conversion_beside_them() -> None:
    done = Event()

    def convert_until_done() -> int:
        count = 0
        while not done.is_set() or count == 0:
            model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
            convert(model, "or_ail", example=torch.zeros(2, 8))
            count += 1
        return count

    expected = [results(seed) for seed in range(THREADS)]
    for module in MODULES:
        module.program.plans.clear()  # type: ignore[union-attr, operator]
    with ThreadPoolExecutor(THREADS + 1) as pool:
        converted = pool.submit(convert_until_done)
        try:
            actual = list(pool.map(results, range(THREADS)))
        finally:
            done.set()
    assert converted.result() > 0
    for mine, others in zip(actual, expected, strict=True):
        assert all(
            torch.equal(a, b) for pair, other in zip(mine, others, strict=True) for a, b in zip(pair, other, strict=True)
        )
