"""Problems of I-RAVEN, each a function of configuration, seed and index alone."""

from __future__ import annotations

from itertools import count

from boolit.lab.raven.answers import answer_set
from boolit.lab.raven.chance import Chance
from boolit.lab.raven.configurations import configuration_named
from boolit.lab.raven.panels import Panel, Problem
from boolit.lab.raven.rows import Strand, strand
from boolit.lab.raven.rules import GROUPS, admissible
from boolit.lab.raven.solver import solve


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
