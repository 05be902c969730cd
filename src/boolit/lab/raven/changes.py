"""Changes of one attribute of the answer, as they lead to its wrong alternatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import comb

from boolit.lab.raven.attributes import FIELDS, LOOKS, Attribute, Look
from boolit.lab.raven.chance import Chance
from boolit.lab.raven.panels import Entities, Slots, occupied
from boolit.lab.raven.places import slot_sets
from boolit.lab.raven.rows import Strand, persistent

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
