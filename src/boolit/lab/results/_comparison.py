"""What a comparison of activations is: how it was made, who is best, and how the others stand to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from boolit.lab.errors import UserError
from boolit.lab.results._contrasts import Contrast
from boolit.lab.results._scores import Metric, Summary


@dataclass(frozen=True)
class Method:
    """How to compare: Student's t-test or Welch's, Holm's correction or none, the level, and what a diverged run counts."""

    welch: bool = False
    holm: bool = False
    alpha: float = 0.05
    diverged: Literal["exclude", "worst"] = "exclude"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise UserError(f"the level of significance lies between 0 and 1, not {self.alpha!r}; 0.05 is usual")
        if self.diverged not in ("exclude", "worst"):
            raise UserError(f"diverged runs are counted by 'exclude' or 'worst', not {self.diverged!r}")

    def __str__(self) -> str:
        test = "Welch's t-test" if self.welch else "Student's t-test"
        corrected = ", Holm-corrected" if self.holm else ""
        counted = ", diverged runs counted as the worst" if self.diverged == "worst" else ""
        return f"two-sided {test}{corrected}{counted}"


@dataclass(frozen=True)
class Comparison:
    """The best activation, and a contrast of it with each other one, the next best first.

    ``solved`` is the value from which on a run counted as solved, if one was asked for.
    """

    metric: Metric
    best: Summary
    contrasts: tuple[Contrast, ...]
    method: Method
    solved: float | None = None

    @property
    def ranking(self) -> tuple[Summary, ...]:
        """Every activation at its best size, the best first."""
        return (self.best, *(contrast.other for contrast in self.contrasts))

    def p(self, contrast: Contrast) -> float:
        """The p-value that decides: Holm's if the method says so."""
        return contrast.p_holm if self.method.holm else contrast.p

    @property
    def worse(self) -> tuple[Contrast, ...]:
        """The contrasts that are significant."""
        return tuple(contrast for contrast in self.contrasts if self.p(contrast) <= self.method.alpha)

    @property
    def indistinguishable(self) -> tuple[Contrast, ...]:
        """The contrasts that are not significant."""
        return tuple(contrast for contrast in self.contrasts if self.p(contrast) > self.method.alpha)
