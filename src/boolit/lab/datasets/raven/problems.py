"""Problems of I-RAVEN, each a function of configuration, seed and index alone: matrix, answer and wrong candidates.

The candidates are the leaves of a tree that has the answer as its root and changes one attribute at every level. Where three
attributes change, each has its right value in four candidates and a wrong one in four, so that the answer cannot be guessed
without the matrix. That is the difference to RAVEN, whose wrong candidates each change one attribute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import comb

from boolit.lab.datasets.raven.configurations import FIELDS, LOOKS, Attribute, Look, configuration_named
from boolit.lab.datasets.raven.matrix import (
    ComponentMatrix,
    Entities,
    Modified,
    Panel,
    Problem,
    draw_matrix,
    entities_persist,
    occupied_slots,
)
from boolit.lab.datasets.raven.rng import StableRandom
from boolit.lab.datasets.raven.rules import GROUPS, Slots, admissible_rules, slot_sets
from boolit.lab.datasets.raven.solver import solve

Change = Callable[[Entities], Entities]
CANDIDATES = 8
DEPTH = 3  # 2³ leaves


def make_problem(configuration: str, seed: int, index: int) -> Problem:
    """The first draft for its index that has the target as its only answer.

    NOTE[paper]: I-RAVEN keeps every draft. In 0.5% of them (189 of the first 35,000 with seed 1234) the context happens to obey
    a second rule, and a second candidate obeys that one: sizes 1, 2, 3 in both rows are a progression and a sum.

    Example:
        >>> make_problem("distribute_four", 1234, 5) == make_problem("distribute_four", 1234, 5)
        True
    """
    drafts = (draft_problem(configuration, seed, index, attempt) for attempt in count())
    return next(draft for draft in drafts if solve(draft) == [draft.target])


def draft_problem(configuration: str, seed: int, index: int, attempt: int) -> Problem:
    """A problem that may have several answers."""
    rng = StableRandom(seed, "iraven", configuration, index, attempt)
    components = configuration_named(configuration).components
    rules = [tuple(rng.choice(admissible_rules(component, group)) for group in GROUPS) for component in components]
    matrices = [draw_matrix(component, own, rng) for component, own in zip(components, rules, strict=True)]
    leaves, modified = answer_set(matrices, rng)
    candidates = rng.permutation(leaves)
    panels = [tuple(matrix.rows[row][column] for matrix in matrices) for row in range(3) for column in range(3)]
    return Problem(configuration, tuple(panels[:-1]), tuple(candidates), candidates.index(leaves[0]), tuple(rules), modified)


def answer_set(matrices: list[ComponentMatrix], rng: StableRandom) -> tuple[list[Panel], tuple[Modified, ...]]:
    """The candidates, the answer first, and the attributes that were changed to make them.

    Three attributes change once each, which makes eight. Where there are only one or two, Number is among them, comes last and
    changes as often as candidates are missing. If Position is the only other one, a change of Number would undo that of
    Position, and starts from the answer.
    """
    possible = [(number, attribute) for number, matrix in enumerate(matrices) for attribute in changeable_attributes(matrix)]
    modified = tuple(sorted(rng.sample(possible, DEPTH), key=lambda pair: pair[1] == "Number"))
    answer = tuple(matrix.answer for matrix in matrices)
    candidates: list[Panel] = [answer]
    for number, attribute in modified:
        matrix = matrices[number]
        if attribute == "Number":
            bases = [answer] if [name for _, name in modified] == ["Position", "Number"] else list(candidates)
            places = sorted({occupied_slots(base[number]) for base in bases})
            missing = (CANDIDATES - len(candidates)) // len(bases)
            changes = number_changes(matrix, missing, places, rng)
        else:
            bases = list(candidates)
            changes = [position_change(matrix, rng) if attribute == "Position" else look_change(matrix, attribute, rng)]
        for change in changes:
            candidates += [(*base[:number], change(base[number]), *base[number + 1 :]) for base in bases]
    return candidates, modified


def changeable_attributes(matrix: ComponentMatrix) -> list[Attribute]:
    """The attributes whose change breaks a rule of the component.

    Position does not where the rule is on Number and leaves it open, nor does noise: Type, Size or Color under Constant where
    every panel has entities of its own.
    """
    place, *others = matrix.rules
    attributes: list[Attribute] = []
    if len(matrix.component.slots) > 1:
        attributes.append("Number")
    if place.attribute != "Number" and comb(len(matrix.component.slots), len(matrix.answer)) > 1:
        attributes.append("Position")
    for look, rule in zip(LOOKS, others, strict=True):
        low, high = matrix.component.limits[look]
        if high > low and (rule.name != "Constant" or matrix.uniform or entities_persist(place)):
            attributes.append(look)
    return attributes


def look_change(matrix: ComponentMatrix, look: Look, rng: StableRandom) -> Change:
    """Another level for all entities together, or for each separately where their levels are independent."""
    low, high = matrix.component.limits[look]
    old = [getattr(entity, FIELDS[look]) for entity in matrix.answer]
    together = matrix.uniform or matrix.rules[1 + LOOKS.index(look)].name != "Constant"
    others = [[level for level in range(low, high + 1) if level != own] for own in old]
    new = [rng.choice(others[0])] * len(old) if together else [rng.choice(levels) for levels in others]
    return lambda entities: tuple(replace(entity, **{FIELDS[look]: level}) for entity, level in zip(entities, new, strict=True))


def position_change(matrix: ComponentMatrix, rng: StableRandom) -> Change:
    """As many slots, at least one of them new."""
    old = occupied_slots(matrix.answer)
    new = rng.choice([slots for slots in slot_sets(len(matrix.component.slots), len(old)) if slots != old])
    return lambda entities: tuple(replace(entity, slot=slot) for entity, slot in zip(entities, new, strict=True))


def number_changes(matrix: ComponentMatrix, count: int, before: list[Slots], rng: StableRandom) -> list[Change]:
    """That many different changes to another number of entities, each with new slots for every set occupied ``before``.

    No number is used again before all have been used, and no set of slots is used twice. The new entities are some of the old
    ones, or all of them and copies of some.
    """
    total, old = len(matrix.component.slots), len(matrix.answer)
    numbers = [number for number in range(1, total + 1) if number != old and comb(total, number) >= len(before)]
    unused = {number: rng.permutation(slot_sets(total, number)) for number in numbers}
    changes: list[Change] = []

    def change(sources: list[int], new: dict[Slots, Slots]) -> Change:
        return lambda entities: tuple(
            replace(entities[source], slot=slot) for source, slot in zip(sources, new[occupied_slots(entities)], strict=True)
        )

    while len(changes) < count:
        for number in rng.permutation(number for number in numbers if len(unused[number]) >= len(before)):
            new = {base: unused[number].pop() for base in before}
            copies = [rng.choice(range(old)) for _ in range(number - old)]
            changes.append(change(rng.sample([*range(old), *copies], number), new))
    return changes[:count]
