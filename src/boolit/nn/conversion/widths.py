"""New widths that keep the old ones as far as the activation allows, or that meet a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from boolit.nn.conversion.channels import Axes, ChannelAnalysis, LayerWidth, Link, Part
from boolit.nn.width import round_width, width_for_budget

Widths = tuple[Fraction, ...]


@dataclass
class WidthGroup:
    """Axes whose widths depend on each other through activations.

    ``unit`` channels of an axis become ``factors[axis] * width`` channels, where ``width`` is a multiple of ``multiple``.
    """

    factors: dict[int, Fraction]
    links: list[Link]
    unit: int
    nominal: Fraction
    multiple: int
    fixed: bool


class Scale:
    """The new sizes of all channels, given the width of each group."""

    def __init__(self, axes: Axes, groups: Sequence[WidthGroup], widths: Widths) -> None:
        self._axes = axes
        self._factors = {
            root: factor * width / group.unit
            for group, width in zip(groups, widths, strict=True)
            for root, factor in group.factors.items()
        }

    def size(self, use: LayerWidth) -> int:
        return use.times * sum(self.part(part) for part in use.parts)

    def part(self, part: Part) -> int:
        return int(part.size * self._factors.get(self._axes.root(part.axis), Fraction(1)))


def width_groups(analysis: ChannelAnalysis, copies: int = 0) -> list[WidthGroup]:
    """Return the groups of dependent widths and add activations that no widths allow to ``analysis.refusals``.

    Args:
        analysis: a finished analysis.
        copies: channels before an activation for each old one with ``weights="exact"``, else 0.
    """
    groups = [_group(analysis, links, copies) for links in _connected(analysis)]
    return [group for group in groups if group is not None]


def round_widths(groups: Sequence[WidthGroup], scale: Fraction = Fraction(1)) -> Widths:
    """Return the width of each group at a common scale of the free ones, rounded to its multiple."""
    return tuple(
        group.nominal if group.fixed else Fraction(round_width(group.nominal * scale, group.multiple)) for group in groups
    )


def fit_widths(groups: Sequence[WidthGroup], budget: int, count: Callable[[Widths], int]) -> Widths:
    """Return widths at a common scale whose count is close to the budget, each rounded up or down as suits best."""
    widest = max((group.nominal for group in groups if not group.fixed), default=Fraction(0))
    wide = round_widths(groups, Fraction(2 * max((group.multiple for group in groups), default=1)))
    if not widest or count(wide) == count(round_widths(groups)):
        return round_widths(groups)

    def miss(widths: Widths) -> int:
        return abs(count(widths) - budget)

    # One step changes the widest layer by one channel.
    steps = width_for_budget(lambda n: count(round_widths(groups, n / widest)), budget)
    near = [_improve_rounding(groups, n / widest, miss, budget // 100) for n in (steps, steps - 1, steps + 1) if n > 0]
    return min(near, key=miss)


def _improve_rounding(groups: Sequence[WidthGroup], scale: Fraction, miss: Callable[[Widths], int], tolerance: int) -> Widths:
    """Round widths the other way where that helps: equal layers equally, unless the count still misses by much."""
    free = sorted((i for i, group in enumerate(groups) if not group.fixed), key=lambda i: -groups[i].nominal)
    kinds: dict[tuple[Fraction, int], set[int]] = {}
    for i in free:
        kinds.setdefault((groups[i].nominal, groups[i].multiple), set()).add(i)
    widths = round_widths(groups, scale)
    for changed in (*kinds.values(), *({i} for i in free)):
        if changed in kinds.values() or miss(widths) > tolerance:
            other = tuple(_other_rounding(groups[i], n, scale) if i in changed else n for i, n in enumerate(widths))
            widths = min(widths, other, key=miss)
    return widths


def _other_rounding(group: WidthGroup, width: Fraction, scale: Fraction) -> Fraction:
    up = width <= group.nominal * scale
    return width + group.multiple if up else max(width - group.multiple, Fraction(group.multiple))


def _connected(analysis: ChannelAnalysis) -> list[list[Link]]:
    """Return the links in groups that share axes."""
    root, groups = analysis.axes.root, list[tuple[set[int], list[Link]]]()
    for link in analysis.links:
        ends = {root(link.before.axis), root(link.after.axis)}
        touching = [group for group in groups if group[0] & ends]
        merged = ends.union(*(axes for axes, _ in touching)), [*(each for _, links in touching for each in links), link]
        groups = [group for group in groups if group not in touching] + [merged]
    return [links for _, links in groups]


def _group(analysis: ChannelAnalysis, links: list[Link], copies: int) -> WidthGroup | None:
    axes, root = analysis.axes, analysis.axes.root
    factors = _factors(analysis, links, copies)
    if factors is None:
        return None
    before = {root(link.before.axis) for link in links}
    unit = gcd(*(size for axis in before for size in axes.multiples[axis]))
    if copies:
        grown = [axis for axis, factor in factors.items() if factor * copies != 1 and axes.pins[axis]]
        for link in links if grown else ():
            reason = f"weights='exact' needs more channels where {axes.pins[grown[0]]} fixes them"
            analysis.refusals.setdefault(link.site, reason)
        return None if grown else WidthGroup(factors, links, unit, Fraction(unit * copies), 1, fixed=True)
    pinned = sorted((axis for axis in factors if axes.pins[axis]), key=lambda axis: axis not in before)
    clashing = [axis for axis in pinned if factors[axis] != factors[pinned[0]]]
    for link in links if clashing else ():
        if root(link.after.axis) in clashing or root(link.before.axis) in clashing:
            ends = [axes.pins[root(part.axis)] or axes.pins[pinned[0]] for part in (link.after, link.before)]
            analysis.refusals.setdefault(link.site, f"its output is fixed by {ends[0]}, and its input by {ends[1]}")
    if clashing:
        return None
    nominal = unit / (factors[pinned[0]] if pinned else max(factors[axis] for axis in before))
    sizes = [(size, multiple, factors[axis]) for axis in factors for size, multiple in axes.multiples[axis].items()]
    multiple = lcm(*((Fraction(multiple * unit, size) / factor).numerator for size, multiple, factor in sizes))
    if pinned and nominal % multiple:
        needed = "" if nominal == unit else f"would need {nominal} before it, which "
        for link in links:
            why = f"its {unit} channels are fixed by {axes.pins[pinned[0]]}, and {needed}must be a multiple of {multiple}"
            analysis.refusals.setdefault(link.site, why)
        return None
    return WidthGroup(factors, links, unit, nominal, multiple, bool(pinned))


def _factors(analysis: ChannelAnalysis, links: list[Link], copies: int) -> dict[int, Fraction] | None:
    """Return the factor of every axis relative to the first, or None if an activation contradicts the others."""
    axes, root = analysis.axes, analysis.axes.root
    made = {root(link.after.axis): link for link in links if link.ratio != 1 or copies}
    refused = len(analysis.refusals)
    for link in links:
        source = made.get(root(link.before.axis))
        # An activation may read what another one made only through a depthwise layer, which cannot change the width.
        if source and (copies or not link.depthwise):
            cause = axes.cause(link.before.axis, source.after.axis)
            output = "its output" if source is link else f"the output of {source.site.name}"
            tied = f"{cause} makes its input as wide as {output}"
            analysis.refusals.setdefault(link.site, tied if cause else f"it acts on the output of {source.site.name}")
    if len(analysis.refusals) > refused:
        return None
    factors, queue = {root(links[0].before.axis): Fraction(1)}, [*links]
    while queue:
        link = next(each for each in queue if {root(each.before.axis), root(each.after.axis)} & factors.keys())
        queue.remove(link)
        before, after, ratio = root(link.before.axis), root(link.after.axis), link.ratio
        base = factors[before] if before in factors else factors[after] / ratio
        factors.setdefault(before, base)
        if factors.setdefault(after, base * ratio) != base * ratio:
            cause = axes.cause(link.before.axis, link.after.axis)
            tied = f"{cause} makes its output as wide as its input" if cause else "activations of different maps meet after it"
            analysis.refusals.setdefault(link.site, tied)
    return None if len(analysis.refusals) > refused else factors
