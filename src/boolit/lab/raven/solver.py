"""Solves a problem by what is seen: deduces the rules from the eight panels and looks which candidates obey them.

For every component and every group of attributes, all rules with all their values are tried on the eight panels. Each that
the first two rows obey, and that the beginning of the third does not contradict, predicts something of the last panel: its
number of entities, its slots, or its level of type, size or colour. A candidate is an answer if in every group it is what
one of the rules predicts. No rule takes precedence over another: in a good problem a single candidate is left all the same.

Noise does not matter. Angles are not looked at. Where the entities of a panel differ in an attribute, the levels of all of them
are its value, which only Constant can govern. Where no rule fits type, size or colour in a component with several slots, every
panel has entities of its own, and any candidate will do.
"""

from __future__ import annotations

from collections.abc import Callable

from boolit.lab.raven.attributes import LOOKS, Look
from boolit.lab.raven.configurations import Component, configuration_named
from boolit.lab.raven.deduction import Context, H, computed, constant, distributed, level_steps, slot_steps
from boolit.lab.raven.panels import Entities, Problem, levels, occupied
from boolit.lab.raven.rules import offset


def solve(problem: Problem) -> list[int]:
    """The candidates that obey a rule of the context in everything.

    Example:
        >>> from boolit.lab.raven.problems import problem
        >>> example = problem("center_single", seed=1234, index=0)
        >>> solve(example) == [example.target]
        True
    """
    left = list(range(len(problem.candidates)))
    for number, component in enumerate(configuration_named(problem.configuration).components):
        context = [panel[number] for panel in problem.context]
        tests = [_placement(component, context), *(_look(look, component, context) for look in LOOKS)]
        left = [index for index in left if all(passes(problem.candidates[index][number]) for passes in tests)]
    return left


def _placement(component: Component, context: list[Entities]) -> Callable[[Entities], bool]:
    """Whether a panel has the number or the slots that a rule predicts."""
    slots = _in_rows([_slots(panel) for panel in context])
    numbers = _in_rows([len(panel) - 1 for panel in context])
    good_slots = constant(slots) | computed(slots, slot_steps(len(component.slots)))
    if len({len(occupied) for occupied in slots[0]}) == 1:
        good_slots |= distributed(slots)
    good_numbers = computed(numbers, level_steps(component.limits["Number"], offset("Number"))) | distributed(numbers)
    return lambda panel: _slots(panel) in good_slots or len(panel) - 1 in good_numbers


def _look(look: Look, component: Component, context: list[Entities]) -> Callable[[Entities], bool]:
    """Whether a panel has the type, size or colour that a rule predicts, or no rule fits because it is noise."""
    seen = [levels(panel, look) for panel in context]
    good = constant(_in_rows(seen))
    if all(len(several) == 1 for several in seen):
        shared = _in_rows([level for (level,) in seen])
        more = None if look == "Type" else offset(look)
        predicted = computed(shared, level_steps(component.limits[look], more)) | distributed(shared)
        good |= {(level,) for level in predicted}
    noise = not good and len(component.slots) > 1
    return lambda panel: noise or levels(panel, look) in good


def _in_rows(seen: list[H]) -> Context[H]:
    a, b, c, d, e, f, g, h = seen
    return (a, b, c), (d, e, f), (g, h)


def _slots(panel: Entities) -> frozenset[int]:
    return frozenset(occupied(panel))
