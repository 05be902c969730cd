"""What was changed, to be printed, or kept as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import nn

Budget = Literal["width", "params"]
Weights = Literal["new", "keep", "exact"]


class Change(NamedTuple):
    """One thing that was changed: an activation, with its widths before and after, or a layer, with its parameters."""

    layer: str
    was: str
    now: str
    widths: tuple[int, int] | None = None
    parameters: tuple[int, int] | None = None
    weights: str = ""

    def __str__(self) -> str:
        return f"{self.layer}: {self.was} → {self.now}{f', {self.weights} weights' if self.weights else ''}"

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        block, _, layer = self.layer.rpartition(".")
        widths, parameters = (f"{pair[0]:,} → {pair[1]:,}" if pair else "" for pair in (self.widths, self.parameters))
        return block, layer, self.was, self.now, widths, parameters, self.weights


class FoundActivation(NamedTuple):
    """An activation of a model: its name there, what it is, how many channels it reads if that is known, and who calls it."""

    name: str
    kind: str
    width: int | None
    owner: str


@dataclass(frozen=True)
class Conversion:
    """A converted model and what was changed: print it to read that.

    Args:
        model: the converted model.
        spec: what was put in.
        budget: ``width`` or ``params``, as it was asked for.
        changes: each with ``layer`` (its name in the model), ``was`` and ``now``; of an activation the ``widths`` around it,
            of a layer its ``parameters`` before and after and whether its ``weights`` are new, kept or exact.
        left: the activations that stayed, by name, each with the reason.
        parameters: the trainable ones before and after.

    Example:
        >>> from boolit.nn import convert
        >>> done = convert(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)), "or_ail")
        >>> done.model[1].spec, done.parameters, str(done.changes[0])
        ('or_ail', (641, 609), '1: ReLU() → or_ail')
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
        lines += _table([("block", "layer", "was", "now", "widths", "parameters", "weights"), *(c.cells for c in self.changes)])
        lines += [f"  {name}: left, {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """All but the model, as plain data that ``json`` can write.

        Example:
            >>> from boolit.nn import convert
            >>> convert(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), "silu").to_dict()["parameters"]
            [72, 72]
        """
        changes = [change._asdict() for change in self.changes]
        plain = [{name: list(value) if isinstance(value, tuple) else value for name, value in one.items()} for one in changes]
        rest = {"left": self.left, "parameters": list(self.parameters)}
        return {"spec": self.spec, "budget": self.budget, "changes": plain, **rest}


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows under each other, without the columns in which nothing stands."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    filled = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
    return ["  " + "  ".join(row).rstrip() for row in zip(*filled, strict=True)]
