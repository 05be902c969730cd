"""Problems of I-RAVEN, each a function of configuration, seed and index: matrix, answer and wrong candidates.

The candidates are the leaves of a tree with the answer as its root that changes one attribute at every level. Where three
attributes change, each has its right value in four candidates and a wrong one in four, so that the answer cannot be guessed
without the matrix. In RAVEN, each wrong candidate changes one attribute of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb

from boolit.lab.datasets.iraven import rules as raven
from boolit.lab.datasets.iraven.rules import LOOKS, Component, Rows, Rule, Slots, StableRandom, slot_sets

CANDIDATES = 8
DEPTH = 3  # 2³ leaves


@dataclass(frozen=True, slots=True)
class Entity:
    """A shape: its slot in the component, and the levels of its attributes."""

    slot: int
    type: int
    size: int
    color: int
    angle: int


Entities = tuple[Entity, ...]  # those of one component, ordered by slot
Panel = tuple[Entities, ...]  # the entities of each component
Appearance = dict[str, int]  # the levels of type, size, color and angle
Modified = tuple[int, str]  # the number of a component and its attribute
Change = Callable[[Entities], Entities]


@dataclass(frozen=True)
class Problem:
    """Eight panels of a 3 × 3 matrix, row by row, and eight candidates for the ninth.

    ``rules`` has those of each component, in the order Number/Position, Type, Size, Color; ``modified`` lists the attributes
    that the tree of candidates changes.
    """

    configuration: str
    context: tuple[Panel, ...]
    candidates: tuple[Panel, ...]
    target: int
    rules: tuple[tuple[Rule, ...], ...]
    modified: tuple[Modified, ...]


@dataclass(frozen=True, slots=True)
class ComponentMatrix:
    """A component of a matrix: its rules, whether the entities of a panel are copies, and its nine panels."""

    component: Component
    rules: tuple[Rule, ...]
    uniform: bool
    rows: Rows[Entities]

    @property
    def answer(self) -> Entities:
        """The ninth panel."""
        return self.rows[2][2]


def occupied_slots(entities: Entities) -> Slots:
    """Return the slots of the entities."""
    return tuple(entity.slot for entity in entities)


def _entities_persist(rule: Rule) -> bool:
    return rule.name == "Constant" or (rule.attribute == "Position" and rule.name != "Arithmetic")


def draw_matrix(component: Component, rules: tuple[Rule, ...], rng: StableRandom) -> ComponentMatrix:
    """Draw the panels of a component under its rules for Number/Position, Type, Size and Color.

    Rows are independent. A rule other than Constant gives all entities of a panel the same level. Under Constant, entities keep
    their levels as long as they persist; where a rule for Number or Position makes new ones, these are copies in a uniform
    component, and random otherwise.
    """
    uniform = rng.choice((False, False, False, True))
    slots = raven.draw_slots(rules[0], component, rng)
    governed = {  # by attribute
        rule.attribute.lower(): raven.draw_levels(rule, component.limits[rule.attribute], rng)
        for rule in rules[1:]
        if rule.name != "Constant"
    }

    def row(number: int) -> raven.Row[Entities]:
        appearances = _draw_appearances(len(slots[number][0]), uniform, component, rng)
        panels = []
        for panel, occupied in enumerate(slots[number]):
            if panel and not _entities_persist(rules[0]):
                copies = appearances[:1] * len(occupied)
                appearances = copies if uniform else _draw_appearances(len(occupied), uniform, component, rng)
            levels = {look: rows[number][panel] for look, rows in governed.items()}
            entities = (Entity(slot, **(free | levels)) for slot, free in zip(occupied, appearances, strict=True))
            panels.append(tuple(sorted(entities, key=lambda entity: entity.slot)))
        return tuple(panels)

    return ComponentMatrix(component, rules, uniform, tuple(row(number) for number in range(3)))


def _draw_appearances(number: int, uniform: bool, component: Component, rng: StableRandom) -> list[Appearance]:
    ranges = {look.lower(): component.limits[look] for look in LOOKS} | {"angle": range(len(raven.ANGLES))}
    different = [{name: rng.choice(levels) for name, levels in ranges.items()} for _ in range(1 if uniform else number)]
    return different * number if uniform else different


def make_problem(configuration: str, seed: int, index: int) -> Problem:
    """Return a problem of a configuration.

    In 0.5% of the problems the context happens to obey a second rule, and a second candidate obeys it: sizes 1, 2, 3 in both
    rows are a progression and a sum. As in I-RAVEN, they are kept.
    """
    rng = StableRandom(seed, "iraven", configuration, index, 0)
    components = raven.LAYOUTS[configuration].components
    rules = [tuple(rng.choice(raven.admissible_rules(component, group)) for group in raven.GROUPS) for component in components]
    matrices = [draw_matrix(*both, rng) for both in zip(components, rules, strict=True)]
    leaves, modified = answer_set(matrices, rng)
    candidates = rng.permutation(leaves)
    panels = [tuple(matrix.rows[row][column] for matrix in matrices) for row in range(3) for column in range(3)]
    return Problem(configuration, tuple(panels[:-1]), tuple(candidates), candidates.index(leaves[0]), tuple(rules), modified)


def answer_set(matrices: list[ComponentMatrix], rng: StableRandom) -> tuple[list[Panel], tuple[Modified, ...]]:
    """Return the candidates, the answer first, and the attributes that were changed to make them.

    Three attributes change once each, which makes eight. If there are only one or two, Number is among them, comes last and
    changes as often as candidates are missing. If Position is the other one, a change of Number would undo that of Position
    and starts from the answer.
    """
    possible = [(number, attribute) for number, matrix in enumerate(matrices) for attribute in _changeable_attributes(matrix)]
    modified = tuple(sorted(rng.permutation(possible)[:DEPTH], key=lambda pair: pair[1] == "Number"))
    answer = tuple(matrix.answer for matrix in matrices)
    candidates: list[Panel] = [answer]
    for number, attribute in modified:
        matrix = matrices[number]
        if attribute == "Number":
            bases = [answer] if [name for _, name in modified] == ["Position", "Number"] else list(candidates)
            places = sorted({occupied_slots(base[number]) for base in bases})
            missing = (CANDIDATES - len(candidates)) // len(bases)
            changes = _number_changes(matrix, missing, places, rng)
        else:
            bases = list(candidates)
            changes = [_change(matrix, attribute, rng)]
        for change in changes:
            candidates += [(*base[:number], change(base[number]), *base[number + 1 :]) for base in bases]
    return candidates, modified


def _changeable_attributes(matrix: ComponentMatrix) -> list[str]:
    """Return the attributes whose change breaks a rule of the component.

    A change of Position does not if the rule is on Number; nor does one of Type, Size or Color under Constant if every panel
    has new entities.
    """
    place, *others = matrix.rules
    attributes = ["Number"] if len(matrix.component.slots) > 1 else []
    if place.attribute != "Number" and comb(len(matrix.component.slots), len(matrix.answer)) > 1:
        attributes.append("Position")
    for look, rule in zip(LOOKS, others, strict=True):
        if len(matrix.component.limits[look]) > 1 and (rule.name != "Constant" or matrix.uniform or _entities_persist(place)):
            attributes.append(look)
    return attributes


def _change(matrix: ComponentMatrix, attribute: str, rng: StableRandom) -> Change:
    """Draw other slots, or another level for all entities together, or for each if their levels are independent."""
    field = "slot" if attribute == "Position" else attribute.lower()
    old = tuple(getattr(entity, field) for entity in matrix.answer)
    if attribute == "Position":
        new = rng.choice([slots for slots in slot_sets(len(matrix.component.slots), len(old)) if slots != old])
    else:
        together = matrix.uniform or matrix.rules[raven.GROUPS.index(attribute)].name != "Constant"
        others = [[level for level in matrix.component.limits[attribute] if level != before] for before in old]
        new = (rng.choice(others[0]),) * len(old) if together else tuple(rng.choice(levels) for levels in others)
    return lambda entities: tuple(replace(entity, **{field: value}) for entity, value in zip(entities, new, strict=True))


def _number_changes(matrix: ComponentMatrix, count: int, before: list[Slots], rng: StableRandom) -> list[Change]:
    """Draw ``count`` changes to another number of entities, each with new slots for every set occupied ``before``.

    A number is used again only after all have been used, and no set of slots is used twice. The new entities are some of the
    old ones, or all of them and copies of some.
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
            changes.append(change(rng.permutation([*range(old), *copies])[:number], new))
    return changes[:count]
