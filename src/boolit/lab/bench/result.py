"""What a benchmark of the gates found, and the ratios it comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import boolit
from boolit.lab.bench.settings import REFERENCES, Case, Direction, Key, Settings, Style, program_of
from boolit.lab.bench.timing import Timing
from boolit.lab.runs import JSON
from boolit.logic.vocabulary import approximate
from boolit.nn import Gate

# The bars boolit sets itself: as ratios of our figure to another's, each of them at most this.

CALL = 2.5  # an 8×8 call against relu's
BITS_KEPT = 1 / 8  # bytes an input element, of an approximate gate


def time_bars(spec: str) -> dict[str, float]:
    """Bars on the time of forward and backward, by what it is compared with.

    Example:
        >>> time_bars("or_ail")
        {'relu': 0.7, 'published': 0.05}
        >>> time_bars("xnor_nil")
        {'silu': 1.0, 'published': 0.2}
    """
    program = program_of(spec)
    if program is None:
        return {}
    kinds = {approximate(form) for _, form in program.members}
    if len(kinds) > 1:
        return {}
    bars = {"published": 1 / 20 if kinds == {True} else 1 / 5}
    if isinstance(boolit.activation(spec), Gate):
        return ({"relu": 0.7} if kinds == {True} else {"silu": 1.0}) | bars
    three = {("or", "ail"), ("and", "ail"), ("xnor", "ail")}
    return ({"silu": 1.0} if program.strategy == "d" and set(program.members) == three else {}) | bars


def call_bar(spec: str) -> float | None:
    """The bar on the time of a small call against relu's."""
    return CALL if program_of(spec) else None


def kept_bar(spec: str, itemsize: int) -> float | None:
    """The bar on the bytes kept for backward per input element: one bit for an approximate gate, the input for an exact one."""
    module = boolit.activation(spec)
    if not isinstance(module, Gate):
        return None
    return BITS_KEPT if approximate(module.form) else float(itemsize)


@dataclass(frozen=True)
class Ratio:
    """Our figure as a multiple of another's; ``paired`` is the same formed round by round."""

    spec: str
    against: str
    value: float
    paired: float
    bar: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is within its bar, if it has one."""
        return None if self.bar is None else self.value <= self.bar


@dataclass(frozen=True)
class Group:
    """Candidates timed against each other in one round robin, on one tensor or (``call``) on one too small to matter."""

    case: Case
    direction: Direction
    timings: Mapping[Key, Timing]
    style: Style = "module"
    call: bool = False

    @property
    def specs(self) -> list[str]:
        """What of ours was timed."""
        return [key.name for key in self.timings if key.maker == "boolit"]

    def ratios(self, spec: str) -> dict[str, Ratio]:
        """Ours to each of the others, by the name of the other: a reference, ``published`` or ``compiled``."""
        others: dict[str, Key] = {name: Key("torch", name) for name in REFERENCES}
        others |= {"published": Key("published", spec), "compiled": Key("compiled", spec)}
        timing, bars = self.timings[Key("boolit", spec)], self._bars(spec)
        return {
            name: Ratio(spec, name, timing.ratio(other), timing.paired_ratio(other), bars.get(name))
            for name, key in others.items()
            if (other := self.timings.get(key))
        }

    def _bars(self, spec: str) -> dict[str, float]:
        if self.call:
            bar = call_bar(spec)
            return {} if bar is None else {"relu": bar}
        return time_bars(spec) if self.direction == "forward+backward" else {}


@dataclass(frozen=True)
class Result:
    """Everything a run of ``boolit bench gates`` found; ``kept`` is in bytes an input element."""

    stamp: Mapping[str, JSON]
    settings: Settings
    groups: Sequence[Group]
    kept: Mapping[Case, Mapping[Key, float]]
    skipped: Mapping[str, str]

    def worst_kept(self, key: Key) -> float | None:
        """The most a candidate keeps in any of the cases; None if it was in none."""
        return max((kept[key] for kept in self.kept.values() if key in kept), default=None)

    def kept_bar(self, spec: str) -> float | None:
        """What it may keep."""
        return kept_bar(spec, self.settings.dtype.itemsize)

    def verdicts(self) -> list[bool]:
        """Whether each bar is met, over all that was measured."""
        ratios = [ratio for group in self.groups for spec in group.specs for ratio in group.ratios(spec).values()]
        timed = [ratio.met for ratio in ratios if ratio.met is not None]
        kept = [(self.worst_kept(Key("boolit", spec)), self.kept_bar(spec)) for spec in self.settings.specs]
        return timed + [most <= bar for most, bar in kept if most is not None and bar is not None]

    def disturbance(self) -> float:
        """How far the two ways to form a ratio are apart, as a share of it, for the median of our ratios to torch's."""
        ratios = [ratio for group in self.groups for spec in group.specs for ratio in group.ratios(spec).values()]
        apart = sorted(abs(ratio.paired / ratio.value - 1) for ratio in ratios if ratio.against in REFERENCES)
        return apart[len(apart) // 2] if apart else 0.0
