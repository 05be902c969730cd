"""Problems of I-RAVEN, each a function of configuration, seed and index alone: matrix, answer and wrong candidates.

Where three attributes change, each has its right value four times among the candidates and a wrong one four times, so that
nothing can be told about the answer without the matrix. That is what I-RAVEN has over RAVEN, whose wrong candidates each change
one attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from math import comb

from boolit.lab.datasets.raven.configurations import FIELDS, LOOKS, Attribute, Look, configuration_named
from boolit.lab.datasets.raven.levels import slot_sets
from boolit.lab.datasets.raven.matrix import Strand, persistent, strand
from boolit.lab.datasets.raven.panels import Entities, Modified, Panel, Problem, Slots, occupied
from boolit.lab.datasets.raven.rng import Chance
from boolit.lab.datasets.raven.rules import GROUPS, admissible
from boolit.lab.datasets.raven.solver import solve

# Changes of one attribute of the answer, as they lead to its wrong alternatives.

Change = Callable[[Entities], Entities]


def changeable(strand: Strand) -> list[Attribute]:
    """The attributes whose change breaks a rule of the component.

    Position does not where the rule is on Number and leaves it open, nor does what is noise: Type, Size or Color under Constant
    where every panel has entities of its own.
    """
    place, *others = strand.rules
    attributes: list[Attribute] = []
    if len(strand.component.slots) > 1:
        attributes.append("Number")
    if place.attribute != "Number" and comb(len(strand.component.slots), len(strand.answer)) > 1:
        attributes.append("Position")
    for look, rule in zip(LOOKS, others, strict=True):
        low, high = strand.component.limits[look]
        if high > low and (rule.name != "Constant" or strand.uniform or persistent(place)):
            attributes.append(look)
    return attributes


def look_change(strand: Strand, look: Look, chance: Chance) -> Change:
    """Another level for all entities, or for each its own where they differ as they please."""
    low, high = strand.component.limits[look]
    old = [getattr(entity, FIELDS[look]) for entity in strand.answer]
    alike = strand.uniform or strand.rules[1 + LOOKS.index(look)].name != "Constant"
    others = [[level for level in range(low, high + 1) if level != own] for own in old]
    new = [chance.choice(others[0])] * len(old) if alike else [chance.choice(levels) for levels in others]

    def changed(entities: Entities) -> Entities:
        return tuple(replace(entity, **{FIELDS[look]: level}) for entity, level in zip(entities, new, strict=True))

    return changed


def position_change(strand: Strand, chance: Chance) -> Change:
    """As many other slots, of which one at least is new."""
    old = occupied(strand.answer)
    new = chance.choice([slots for slots in slot_sets(len(strand.component.slots), len(old)) if slots != old])
    return lambda entities: tuple(replace(entity, slot=slot) for entity, slot in zip(entities, new, strict=True))


def number_changes(strand: Strand, count: int, before: list[Slots], chance: Chance) -> list[Change]:
    """That many different changes to another number of entities, one set of slots for each that may be occupied before.

    No number comes twice before all have come once, and no set of slots comes twice.
    """
    total = len(strand.component.slots)
    numbers = [number for number in range(1, total + 1) if number != len(strand.answer) and comb(total, number) >= len(before)]
    unused = {number: chance.shuffled(slot_sets(total, number)) for number in numbers}
    changes: list[Change] = []
    while len(changes) < count:
        for number in chance.shuffled(number for number in numbers if len(unused[number]) >= len(before)):
            new = {base: unused[number].pop() for base in before}
            changes.append(_renumbered(_sources(len(strand.answer), number, chance), new))
    return changes[:count]


def _sources(old: int, new: int, chance: Chance) -> list[int]:
    """Which entity each of the new ones is: some of the old ones, or all and copies of some."""
    copies = [chance.choice(range(old)) for _ in range(new - old)]
    return chance.several([*range(old), *copies], new)


def _renumbered(sources: list[int], new: Mapping[Slots, Slots]) -> Change:
    def changed(entities: Entities) -> Entities:
        slots = new[occupied(entities)]
        return tuple(replace(entities[source], slot=slot) for source, slot in zip(sources, slots, strict=True))

    return changed


# The eight candidates: leaves of a tree that has the answer as its root and changes one attribute at every level.

CANDIDATES = 8
DEPTH = 3  # 2³ leaves


def answer_set(strands: list[Strand], chance: Chance) -> tuple[list[Panel], tuple[Modified, ...]]:
    """The candidates, the answer first, and what they are made by.

    Three attributes change once each, which makes eight. Where there are only one or two, Number is among them, comes last and
    changes as often as candidates are missing. If Position is all there is beside it, a change of Number would undo that
    of Position, and starts from the answer.
    """
    modified = _chosen(strands, chance)
    answer = tuple(strand.answer for strand in strands)
    candidates: list[Panel] = [answer]
    for number, attribute in modified:
        if attribute != "Number":
            change = _change(strands[number], attribute, chance)
            candidates += [_with(candidate, number, change) for candidate in candidates]
    for number in (number for number, attribute in modified if attribute == "Number"):
        bases = [answer] if [attribute for _, attribute in modified] == ["Position", "Number"] else list(candidates)
        places = sorted({occupied(base[number]) for base in bases})
        for change in number_changes(strands[number], (CANDIDATES - len(candidates)) // len(bases), places, chance):
            candidates += [_with(base, number, change) for base in bases]
    return candidates, modified


def _chosen(strands: list[Strand], chance: Chance) -> tuple[Modified, ...]:
    """Three of the attributes that may change, or all if there are fewer; Number is the last."""
    possible = [(number, attribute) for number, strand in enumerate(strands) for attribute in changeable(strand)]
    return tuple(sorted(chance.several(possible, DEPTH), key=lambda modified: modified[1] == "Number"))


def _change(strand: Strand, attribute: Attribute, chance: Chance) -> Change:
    if attribute in ("Type", "Size", "Color"):
        return look_change(strand, attribute, chance)
    return position_change(strand, chance)


def _with(panel: Panel, number: int, change: Change) -> Panel:
    return panel[:number] + (change(panel[number]),) + panel[number + 1 :]


# Problems of I-RAVEN, each a function of configuration, seed and index alone.


def problem(configuration: str, seed: int, index: int) -> Problem:
    """The first draft of its index that has the target as its only answer.

    NOTE[paper]: I-RAVEN keeps every draft. In 0.5% of them (189 of the first 35,000 with seed 1234) the context happens to obey
    a second rule, and a second candidate obeys that one: sizes 1, 2, 3 in both rows are a progression and a sum.

    Example:
        >>> problem("distribute_four", 1234, 5) == problem("distribute_four", 1234, 5)
        True
    """
    drafts = (draft(configuration, seed, index, attempt) for attempt in count())
    return next(found for found in drafts if solve(found) == [found.target])


def draft(configuration: str, seed: int, index: int, attempt: int) -> Problem:
    """A problem as it is drawn, be it ambiguous or not."""
    chance = Chance(seed, "iraven", configuration, index, attempt)
    components = configuration_named(configuration).components
    drawn = [(component, tuple(chance.choice(admissible(component, group)) for group in GROUPS)) for component in components]
    strands = [strand(component, rules, chance) for component, rules in drawn]
    leaves, modified = answer_set(strands, chance)
    candidates = chance.shuffled(leaves)
    rules = tuple(rules for _, rules in drawn)
    return Problem(configuration, _context(strands), tuple(candidates), candidates.index(leaves[0]), rules, modified)


def _context(strands: list[Strand]) -> tuple[Panel, ...]:
    places = [(row, column) for row in range(3) for column in range(3)]
    return tuple(tuple(strand.rows[row][column] for strand in strands) for row, column in places[:-1])
