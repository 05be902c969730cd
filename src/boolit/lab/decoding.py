"""Frame-error rates of four decoders on three codes: ``python -m boolit.lab.decoding``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boolit.graphs.codes import bivariate_bicycle_code, channel_logit, gallager_code, logical_operators, surface_code
from boolit.graphs.gather import IndexLists, gather_gate
from boolit.graphs.propagation import BeliefPropagation


@dataclass
class Problem:
    """Independent bit flips. A frame fails if the correction leaves a flip that one of ``harmful`` notices."""

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

    def failures(self, decoder: BeliefPropagation, rate: float, shots: int) -> int:
        """Return the number of new frames that fail."""
        errors, syndrome = self.sample(shots, rate)
        with torch.no_grad():
            return int(self.failed(decoder(channel(self, rate), syndrome).bits, errors).sum())


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


def learn_weights(problem: Problem, rate: float, iterations: int, steps: int, seconds: float) -> BeliefPropagation:
    """Learn a weight for each edge and iteration.

    The loss is that of the parities of what remains after each iteration, which are XNOR gates of the posterior logits.
    """
    decoder = BeliefPropagation(problem.checks, iterations, weights="edge_iteration")
    optimizer = torch.optim.Adam(decoder.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    harmful, start = IndexLists.read(problem.harmful), time.process_time()
    for _ in range(steps):
        errors, syndrome = problem.sample(128, rate)
        remaining = decoder.trajectory(channel(problem, rate), syndrome) * (1 - 2 * errors.float())
        loss = torch.nn.functional.softplus(-gather_gate(remaining, harmful, "xnor_il")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if time.process_time() - start > seconds:
            break
    return decoder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=int, default=20000, help="frames of each entry (20000)")
    parser.add_argument("--iterations", type=int, default=10, help="of every decoder (10)")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds to learn the weights of one code (60)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    print(f"{'code':10}{'flips':>8}{'product-sum':>14}{'min-sum':>14}{'0.8 min-sum':>14}{'learned':>14}")
    for name, rates in RATES.items():
        problem, iterations = CODES[name](), arguments.iterations
        decoders = [
            BeliefPropagation(problem.checks, iterations),
            BeliefPropagation(problem.checks, iterations, "ail"),
            BeliefPropagation(problem.checks, iterations, "ail", scaling=0.8),
            learn_weights(problem, rates[1], iterations, 600, arguments.seconds),
        ]
        for rate in rates:
            failures = [problem.failures(decoder, rate, arguments.shots) for decoder in decoders]
            print(f"{name:10}{rate:8}" + "".join(f"{count / arguments.shots:14.4f}" for count in failures))


if __name__ == "__main__":
    main()
