"""New widths: those that keep the old ones as far as the activation allows, or those that keep the parameter count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from boolit.nn.conversion.constraints import ActivationLink, Axes, ChannelPart, LayerWidth, WidthConstraints
from boolit.nn.width import round_width, width_for_budget

Widths = tuple[Fraction, ...]


@dataclass
class WidthComponent:
    """Axes whose widths hang together through activations: those before have one, those after ``ratio`` times it."""

    before: set[int]
    after: dict[int, Fraction]
    links: list[ActivationLink]
    unit: int
    nominal: Fraction
    multiple: int
    fixed: bool


class Scale:
    """By what factor every axis changes, given the width of each component."""

    def __init__(self, constraints: WidthConstraints, found: Sequence[WidthComponent], widths: Widths) -> None:
        self._axes = constraints.axes
        self._factors: dict[int, Fraction] = {}
        for one, width in zip(found, widths, strict=True):
            self._factors |= dict.fromkeys(one.before, width / one.unit)
            self._factors |= {root: ratio * width / one.unit for root, ratio in one.after.items()}

    def size(self, use: LayerWidth) -> int:
        """A layer's new width."""
        return use.times * sum(self.part(part) for part in use.parts)

    def part(self, part: ChannelPart) -> int:
        """How many channels there are of a part."""
        return int(part.size * self._factors.get(self._axes.root(part.axis), Fraction(1)))


def components(constraints: WidthConstraints, exact: int = 0) -> list[WidthComponent]:
    """The components of a net; entries in ``constraints.refusals`` say which activations stand in the way.

    With ``exact`` there are that many channels for every one there was before an activation.
    """
    found = [_component(constraints, links, exact) for links in _connected_links(constraints)]
    return [component for component in found if component is not None]


def round_widths(found: Sequence[WidthComponent], scale: Fraction = Fraction(1)) -> Widths:
    """The width of each component at a common scale of the free ones, as near as it divides."""
    return tuple(one.nominal if one.fixed else Fraction(round_width(one.nominal * scale, one.multiple)) for one in found)


def fit_widths(found: Sequence[WidthComponent], budget: int, count: Callable[[Widths], int]) -> Widths:
    """Widths whose parameter count is near the budget: a common scale, then each rounded up or down as serves best."""
    widest = max((one.nominal for one in found if not one.fixed), default=Fraction(0))
    wide = round_widths(found, Fraction(2 * max((one.multiple for one in found), default=1)))
    if not widest or count(wide) == count(round_widths(found)):
        return round_widths(found)

    def miss(widths: Widths) -> int:
        return abs(count(widths) - budget)

    # One step moves the widest layer by a channel.
    steps = width_for_budget(lambda n: count(round_widths(found, n / widest)), budget)
    near = [_improve_rounding(found, n / widest, miss, budget // 100) for n in (steps, steps - 1, steps + 1) if n > 0]
    return min(near, key=miss)


def _improve_rounding(found: Sequence[WidthComponent], scale: Fraction, miss: Callable[[Widths], int], least: int) -> Widths:
    """Rounds widths the other way where that serves: like layers alike, unless the count then still misses by much."""
    free = sorted((i for i, one in enumerate(found) if not one.fixed), key=lambda i: -found[i].nominal)
    kinds: dict[tuple[Fraction, int], set[int]] = {}
    for i in free:
        kinds.setdefault((found[i].nominal, found[i].multiple), set()).add(i)
    widths = round_widths(found, scale)
    for turning in (*kinds.values(), *({i} for i in free)):
        if turning in kinds.values() or miss(widths) > least:
            other = tuple(_round_other_way(found[i], width, scale) if i in turning else width for i, width in enumerate(widths))
            widths = min(widths, other, key=miss)
    return widths


def _round_other_way(one: WidthComponent, width: Fraction, scale: Fraction) -> Fraction:
    return width + one.multiple if width <= one.nominal * scale else max(width - one.multiple, Fraction(one.multiple))


def _connected_links(constraints: WidthConstraints) -> list[list[ActivationLink]]:
    """The links, sorted into those that share axes, directly or through others."""
    root = constraints.axes.root
    ends = {link: (root(link.before.axis), root(link.after.axis)) for link in constraints.links}
    hanging = Axes()
    parts = {one: hanging.new(1) for one in dict.fromkeys(end for pair in ends.values() for end in pair)}
    for before, after in ends.values():
        hanging.join(parts[before], parts[after])
    groups: dict[int, list[ActivationLink]] = {}
    for link, (before, _) in ends.items():
        groups.setdefault(hanging.root(parts[before].axis), []).append(link)
    return list(groups.values())


def _component(constraints: WidthConstraints, links: list[ActivationLink], exact: int) -> WidthComponent | None:
    axes = constraints.axes
    before = {axes.root(link.before.axis) for link in links}
    after = {axes.root(link.after.axis): link.ratio for link in links if link.ratio != 1 or exact}
    if _refuse_sums(constraints, links, after):
        return None
    unit = gcd(*(size for root in before for size in axes.multiples[root]))
    fixed_before = any(axes.pins[root] for root in before)
    fixed_after = [root for root in after if axes.pins[root]]
    if exact:
        held = [*before] if fixed_before else [root for root in fixed_after if after[root] * exact != 1]
        reason = next(filter(None, (axes.pins[root] for root in held)), "")
        if held:
            _refuse(constraints, links, lambda _: f"weights='exact' needs more channels where {reason} fixes them")
            return None
        return WidthComponent(before, after, links, unit, Fraction(unit * exact), 1, fixed=True)
    if fixed_before and fixed_after:
        _refuse(
            constraints,
            (link for link in links if axes.root(link.after.axis) in fixed_after),
            lambda link: _both_fixed(axes, link),
        )
        return None
    # A stream that others add to keeps its width; else what comes before the activation does.
    anchors = fixed_after or [root for root in after if axes.produced[root]]
    nominal = Fraction(unit) if fixed_before or not anchors else unit / after[anchors[0]]
    multiple = _multiple(axes, before, after, unit)
    fixed = fixed_before or bool(fixed_after)
    if fixed and nominal % multiple:
        reason = next(filter(None, (axes.pins[root] for root in (*before, *after))))
        needed = "" if fixed_before else f"would need {nominal} before it, which "
        why = f"its {unit} channels are fixed by {reason}, and {needed}must be a multiple of {multiple}"
        _refuse(constraints, links, lambda _: why)
        return None
    return WidthComponent(before, after, links, unit, nominal, multiple, fixed)


def _multiple(axes: Axes, before: set[int], after: dict[int, Fraction], unit: int) -> int:
    """What the width of ``unit`` channels must be a multiple of, for all sizes to be whole and divide as demanded."""
    ratios = {**dict.fromkeys(before, Fraction(1)), **after}
    sizes = [(size, multiple, ratio) for root, ratio in ratios.items() for size, multiple in axes.multiples[root].items()]
    return lcm(*((Fraction(multiple * unit, size) / ratio).numerator for size, multiple, ratio in sizes))


def _refuse_sums(constraints: WidthConstraints, links: list[ActivationLink], after: dict[int, Fraction]) -> bool:
    """An activation that changes the width cannot act on a sum with what another such activation made."""
    clashing = [link for link in links if constraints.axes.root(link.before.axis) in after]
    ratios = {(root, link.ratio) for link in links if (root := constraints.axes.root(link.after.axis)) in after}
    mixed = [link for link in links if len(ratios) > len(after)] if not clashing else []
    tied = "a residual sum, a product or a depthwise layer makes its input as wide as what a converted activation makes"
    _refuse(constraints, clashing, lambda _: tied)
    _refuse(constraints, mixed, lambda _: "activations of different maps meet after it")
    return bool(clashing or mixed)


def _both_fixed(axes: Axes, link: ActivationLink) -> str:
    before, after = axes.pins[axes.root(link.before.axis)], axes.pins[axes.root(link.after.axis)]
    return f"its output is fixed by {after}, and its input by {before or 'layers that share its width'}"


def _refuse(constraints: WidthConstraints, links: Iterable[ActivationLink], reason: Callable[[ActivationLink], str]) -> None:
    for link in links:
        constraints.refusals.setdefault(link.site, reason(link))
