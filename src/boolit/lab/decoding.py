"""Frame-error rates of four decoders on three codes: ``boolit run decoding``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boolit.graphs.codes import bivariate_bicycle_code, channel_logit, gallager_code, logical_operators, surface_code
from boolit.graphs.gather import IndexLists, gather_gate
from boolit.graphs.propagation import BeliefPropagation


@dataclass
class Problem:
    """Independent bit flips. A frame fails if the bits that are left wrong violate a row of ``harmful``."""

    checks: Tensor
    harmful: Tensor

    def syndrome(self, errors: Tensor) -> Tensor:
        """Return the parities of the checks."""
        return (errors.float() @ self.checks.T.float() % 2).bool()

    def sample(self, shots: int, rate: float) -> tuple[Tensor, Tensor]:
        """Return errors and their syndromes."""
        errors = torch.rand(shots, self.checks.shape[1]) < rate
        return errors, self.syndrome(errors)

    def failed(self, bits: Tensor, errors: Tensor) -> Tensor:
        """Return which frames fail."""
        return ((bits ^ errors).float() @ self.harmful.T.float() % 2).any(1)


def channel(problem: Problem, rate: float) -> Tensor:
    """Return the prior logits."""
    return torch.full((problem.checks.shape[1],), channel_logit(rate))


def quantum(x_checks: Tensor, z_checks: Tensor) -> Problem:
    """Return the problem of X errors. Products of X checks are harmless: no Z check or logical Z operator notices them."""
    return Problem(z_checks, torch.cat([z_checks, logical_operators(x_checks, z_checks)]))


CODES: dict[str, Callable[[], Problem]] = {
    "gallager": lambda: Problem(gallager_code(120), torch.eye(120)),
    "gross": lambda: quantum(*bivariate_bicycle_code()),
    "surface": lambda: quantum(*surface_code(5)),
}
RATES = {"gallager": (0.02, 0.03, 0.04), "gross": (0.03, 0.045, 0.06), "surface": (0.02, 0.05, 0.08)}
DECODERS = ("product-sum", "min-sum", "0.8 min-sum", "learned")
ITERATIONS = 10
PROFILES = {"quick": {"shots": 20_000, "steps": 600}, "paper": {"shots": 200_000, "steps": 2000}}
PARTS = sum(1 + len(rates) for rates in RATES.values())  # that `measure` advances by


def learn_weights(problem: Problem, rate: float, iterations: int, steps: int) -> BeliefPropagation:
    """Learn a weight for each edge and iteration.

    The loss is that of the parities of what remains after each iteration, which are XNOR gates of the posterior logits.
    """
    decoder = BeliefPropagation(problem.checks, iterations, weights="edge_iteration")
    optimizer = torch.optim.Adam(decoder.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    harmful = IndexLists.read(problem.harmful)
    for _ in range(steps):
        errors, syndrome = problem.sample(128, rate)
        remaining = decoder.trajectory(channel(problem, rate), syndrome) * (1 - 2 * errors.float())
        loss = torch.nn.functional.softplus(-gather_gate(remaining, harmful, "xnor_il")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return decoder


def measure(shots: int, steps: int, advance: Callable[[int], None]) -> list[dict[str, Any]]:
    """Count the frames that fail for each code and flip rate. All decoders see the same shots and take `ITERATIONS`."""
    torch.manual_seed(0)
    rows = []
    for code, rates in RATES.items():
        problem = CODES[code]()
        decoders = [
            BeliefPropagation(problem.checks, ITERATIONS),
            BeliefPropagation(problem.checks, ITERATIONS, "ail"),
            BeliefPropagation(problem.checks, ITERATIONS, "ail", scaling=0.8),
            learn_weights(problem, rates[1], ITERATIONS, steps),
        ]
        advance(1)
        for rate in rates:
            errors, syndrome = problem.sample(shots, rate)
            with torch.no_grad():
                decoded = [decoder(channel(problem, rate), syndrome).bits for decoder in decoders]
            failures = [int(problem.failed(bits, errors).sum()) for bits in decoded]
            rows.append({"code": code, "rate": rate, "shots": shots, **dict(zip(DECODERS, failures, strict=True))})
            advance(1)
    return rows
