"""Other activations in a model that exists: found by torch.fx, put in, and the layers around them resized to fit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import fx, nn

from boolit.nn.width import count_parameters

if TYPE_CHECKING:
    from boolit.nn._convert_task import Budget, Change, Spec

__all__ = ["Conversion", "convert"]


@dataclass(frozen=True)
class Conversion:
    """A converted model and what was changed: print it to read that.

    ``left`` are the activations that stayed, each with the reason; ``parameters`` the trainable ones before and after.
    """

    model: nn.Module
    spec: str
    budget: Budget
    changes: list[Change]
    left: dict[str, str]
    parameters: tuple[int, int]

    def __str__(self) -> str:
        before, after = self.parameters
        share = f" ({after / before - 1:+.1%})" if before else ""
        lines = [f"{self.spec} put in, budget={self.budget!r}: {before:,} → {after:,} parameters{share}"]
        lines += [f"  {change}" for change in self.changes]
        lines += [f"  {name}: left, {reason}" for name, reason in self.left.items()]
        if isinstance(self.model, fx.GraphModule):
            lines.append("  the model is now a torch.fx.GraphModule, with every activation a module")
        return "\n".join(lines)


def convert(
    model: nn.Module,
    spec: Spec,
    *,
    budget: Budget = "width",
    replace: Sequence[str | type[nn.Module]] | None = None,
    only: str | Sequence[str] = "*",
    keep: str | Sequence[str] = (),
    skip_pinned: bool = False,
) -> Conversion:
    """A copy of a model with its activations replaced by ``spec``, and its layers resized so that it still runs.

    ``budget="width"`` keeps the width before each activation, ``"params"`` scales all free widths by one factor to keep
    the number of parameters; both round to multiples the activation can take. Layers of unchanged shape keep their
    weights, resized ones are initialised anew by torch's defaults. ``replace`` says which activations go (names such as
    "relu", or classes; by default torch's pointwise ones but sigmoids and shrinkages), ``only`` and ``keep`` choose
    among them by name (patterns of fnmatch). Where the width cannot change it refuses, naming the activation;
    ``skip_pinned=True`` leaves such ones as they are.

    Example:
        >>> mlp = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> print(convert(mlp, "or_ail", budget="params"))
        or_ail put in, budget='params': 641 → 647 parameters (+0.9%)
          0: Linear(8, 64) → Linear(8, 68), new weights
          1: ReLU() → or_ail
          2: Linear(64, 1) → Linear(34, 1), new weights
    """
    from boolit.nn._convert_choice import choose  # here, so that `import boolit` need not wait for them
    from boolit.nn._convert_task import Task

    if budget not in ("width", "params"):
        raise ValueError(f'unknown budget {budget!r}; choose "width" or "params"')
    task = Task(copy.deepcopy(model), spec, choose(replace))
    left = task.select([only] if isinstance(only, str) else only, [keep] if isinstance(keep, str) else keep)
    left |= task.solve(skip_pinned)
    before = count_parameters(model)
    converted, changes = task.apply(task.scale(budget, before))
    return Conversion(converted, task.probe.spec, budget, changes, left, (before, count_parameters(converted)))
