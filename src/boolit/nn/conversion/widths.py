"""New widths that keep the old ones as far as the activation allows, or that meet a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from boolit.nn.conversion.channels import Axes, ChannelAnalysis, Channels, Link, Part
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

    def part(self, part: Part) -> int:
        """Return the new size of a part."""
        return int(part.size * self._factors.get(self._axes.root(part.axis), Fraction(1)))

    def size(self, channels: Channels) -> int:
        """Return the new size of all parts, times their positions."""
        return channels.times * sum(map(self.part, channels.parts))


def round_widths(groups: Sequence[WidthGroup], scale: Fraction = Fraction(1)) -> Widths:
    """Return the width of each group: free ones times ``scale``, rounded to the group's multiple; fixed ones unchanged."""
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
    """Round widths the other way if that helps: equal layers equally, unless the count still misses by much."""
    free = sorted((i for i, group in enumerate(groups) if not group.fixed), key=lambda i: -groups[i].nominal)
    alike: dict[tuple[Fraction, int], set[int]] = {}
    for i in free:
        alike.setdefault((groups[i].nominal, groups[i].multiple), set()).add(i)

    def other_rounding(group: WidthGroup, width: Fraction) -> Fraction:
        up = width <= group.nominal * scale
        return width + group.multiple if up else max(width - group.multiple, Fraction(group.multiple))

    widths = round_widths(groups, scale)
    for changed in (*alike.values(), *({i} for i in free)):
        if changed in alike.values() or miss(widths) > tolerance:
            other = tuple(other_rounding(groups[i], n) if i in changed else n for i, n in enumerate(widths))
            widths = min(widths, other, key=miss)
    return widths


def width_groups(analysis: ChannelAnalysis) -> list[WidthGroup]:
    """Return the groups of dependent widths and add activations that no widths allow to ``analysis.refusals``."""
    groups, remaining = [], list(analysis.links)
    while remaining:
        links, factors, refusals = _connected_links(analysis.axes, remaining)
        group = None if refusals else _group(analysis.axes, links, factors)
        if isinstance(group, WidthGroup):
            groups.append(group)
        else:
            refusals |= group or {}
        for link, reason in refusals.items():
            if link.site is not None:
                analysis.refusals.setdefault(link.site, reason)
    return sorted(groups, key=lambda group: max(map(analysis.links.index, group.links)))


def _connected_links(axes: Axes, remaining: list[Link]) -> tuple[list[Link], dict[int, Fraction], dict[Link, str]]:
    """Remove links that depend on each other from ``remaining``. Return them, the factors of their axes, and refusals."""
    factors, links = {axes.root(remaining[0].before.axis): Fraction(1)}, list[Link]()
    contradictions: dict[Link, str] = {}
    while link := next((each for each in remaining if _ends(axes, each) & factors.keys()), None):
        remaining.remove(link)
        links.append(link)
        before, after = axes.root(link.before.axis), axes.root(link.after.axis)
        base = factors[before] if before in factors else factors[after] / link.ratio
        factors.setdefault(before, base)
        if factors.setdefault(after, base * link.ratio) != base * link.ratio:
            contradictions[link] = "activations of different maps meet after it"
    return links, factors, _chained(axes, links) or contradictions


def _ends(axes: Axes, link: Link) -> set[int]:
    return {axes.root(link.before.axis), axes.root(link.after.axis)}


def _chained(axes: Axes, links: Sequence[Link]) -> dict[Link, str]:
    """Return activations that read what another one made."""
    made = {axes.root(link.after.axis): link for link in links if link.site and link.ratio != 1}
    refusals = {}
    for link in links:
        source = made.get(axes.root(link.before.axis))
        if link.site and source and source.site:
            cause = axes.cause(link.before.axis, source.after.axis)
            output = "its output" if source is link else f"the output of {source.site.name}"
            tied = f"{cause} makes its input as wide as {output}"
            refusals[link] = tied if cause else f"it acts on the output of {source.site.name}"
    return refusals


def _group(axes: Axes, links: list[Link], factors: dict[int, Fraction]) -> WidthGroup | dict[Link, str]:
    """Return the group of these links, or refusals."""
    pins, multiples = axes.pins, axes.multiples
    before = {axes.root(link.before.axis) for link in links if link.site}
    unit = gcd(*(size for axis in before for size in multiples[axis]))
    pinned = sorted((axis for axis in factors if pins[axis]), key=lambda axis: axis not in before)
    clashing = {axis for axis in pinned if factors[axis] != factors[pinned[0]]}
    if clashing:
        fixed = {
            link: [pins[axes.root(part.axis)] or pins[pinned[0]] for part in (link.after, link.before)]
            for link in links
            if _ends(axes, link) & clashing
        }
        return {link: f"its output is fixed by {after}, and its input by {before}" for link, (after, before) in fixed.items()}
    nominal = unit / (factors[pinned[0]] if pinned else max(factors[axis] for axis in before))
    sizes = [(size, multiple, factors[axis]) for axis in factors for size, multiple in multiples[axis].items()]
    multiple = lcm(*((Fraction(multiple * unit, size) / factor).numerator for size, multiple, factor in sizes))
    if pinned and nominal % multiple:
        needed = "" if nominal == unit else f"would need {nominal} before it, which "
        reason = f"its {unit} channels are fixed by {pins[pinned[0]]}, and {needed}must be a multiple of {multiple}"
        return dict.fromkeys(links, reason)
    return WidthGroup(factors, links, unit, nominal, multiple, bool(pinned))
