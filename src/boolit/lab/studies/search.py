"""The paper's random search for hyper-parameters (a:mnist): what is drawn, how the bounds are tightened, who wins.

Some rounds draw settings within bounds and try each once; after each round the bounds close in on its best settings. The
best settings of all rounds are then tried with many seeds, and the one with the best mean wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boolit.lab.common.random import generator
from boolit.lab.training import Recipe

BEST_OF_ROUND = 5
SPREAD = 1.5


@dataclass(frozen=True)
class Range:
    """Where x is drawn uniformly at first, the hyper-parameter it stands for, and the x beyond which there is none."""

    low: float
    high: float
    value: Callable[[float], float]
    least: float = -torch.inf
    most: float = torch.inf


def _power(x: float) -> float:
    return float(f"{10**x:.4g}")


def _below_one(x: float) -> float:
    return float(f"{1 - 10**x:.8g}")


def _plain(x: float) -> float:
    return float(f"{x:.4g}")


# tab:hparam-search
RANGES: dict[str, Range] = {
    "beta1": Range(-3.0, -0.5, _below_one, least=-7.0, most=0.0),
    "beta2": Range(-5.0, -1.0, _below_one, least=-7.0, most=0.0),
    "eps": Range(-10.0, -6.0, _power),
    "weight_decay": Range(-7.0, -3.0, _power),
    "learning_rate": Range(-4.0, 0.0, _power),
    "peak": Range(0.1, 0.5, _plain, least=0.01, most=0.99),
}


def searched_hparams(recipe: Recipe) -> list[str]:
    """Which of the ranges mean something for a recipe."""
    unused = {"beta1", "beta2", "eps"} if recipe.optimiser == "sgd" else set()
    return [name for name in RANGES if name not in unused and (name != "peak" or recipe.schedule == "one-cycle")]


@dataclass(frozen=True)
class Bounds:
    """The bounds of a round.

    Shape: ``low`` and ``high`` are ``(hyper-parameters,)``, float64.
    """

    names: tuple[str, ...]
    low: Tensor
    high: Tensor

    @staticmethod
    def initial(names: Sequence[str]) -> Bounds:
        """Those of the table."""
        ends = torch.tensor([[RANGES[name].low, RANGES[name].high] for name in names], dtype=torch.float64)
        return Bounds(tuple(names), ends[:, 0], ends[:, 1])

    def draw(self, trials: int, *words: str | int) -> Tensor:
        """Settings drawn uniformly; the words (study, activation, round) say which.

        Shape: ``(trials, hyper-parameters)``.
        """
        shares = torch.rand(trials, len(self.names), generator=generator(0, "search", *words), dtype=torch.float64)
        return self.low + shares * (self.high - self.low)

    def tighten(self, trials: Sequence[Trial]) -> Bounds:
        """The bounds of the next round: mean ± 1.5 weighted standard deviations of the best settings of this one.

        NOTE[paper]: the weights are not given; here the n best weigh n, n-1, …, 1. Bounds may leave the table's, as the
        authors' published values do, but not the hyper-parameter's domain.
        """
        best = torch.stack([trial.x for trial in best_first(trials)[:BEST_OF_ROUND]])
        weights = torch.arange(len(best), 0, -1, dtype=torch.float64)
        mean = best.mean(0)
        deviation = ((best - mean).square() * weights.unsqueeze(1)).sum(0).div(weights.sum()).sqrt()
        least, most = (
            torch.tensor([getattr(RANGES[name], end) for name in self.names], dtype=torch.float64) for end in ("least", "most")
        )
        ends = [(mean + side * SPREAD * deviation).clamp(least, most) for side in (-1, 1)]
        return Bounds(self.names, *ends)

    def setting(self, x: Tensor) -> dict[str, float]:
        """The hyper-parameters an x stands for."""
        return {name: RANGES[name].value(float(own)) for name, own in zip(self.names, x, strict=True)}


@dataclass(frozen=True)
class Trial:
    """A setting and how good it was: a larger merit is better, whatever the metric."""

    x: Tensor
    setting: Mapping[str, float]
    merit: float


def best_first(trials: Sequence[Trial]) -> list[Trial]:
    """Trials by merit; equals stay in their order, so the result does not depend on chance."""
    return sorted(trials, key=lambda trial: -trial.merit)


def hparams_to_toml(found: Mapping[str, Mapping[str, Any]], heading: str) -> str:
    """Found settings as a TOML file that a study takes as its ``hparams``.

    Example:
        >>> print(hparams_to_toml({"or_ail": {"learning_rate": 0.01}}, "by hand"))
        # by hand
        <BLANKLINE>
        [hparams.or_ail]
        learning_rate = 0.01
        <BLANKLINE>
    """
    lines = [f"# {heading}\n"]
    for spec, setting in found.items():
        name = spec if spec.replace("_", "").isalnum() else f'"{spec}"'
        lines.append("".join([f"[hparams.{name}]\n", *(f"{key} = {value!r}\n" for key, value in setting.items())]))
    return "\n".join(lines)
