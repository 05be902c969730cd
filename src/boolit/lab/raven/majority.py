"""A solver that does not see the matrix: it takes what most candidates have in common.

It answers RAVEN better than chance, because there every wrong candidate is the answer with one attribute changed; on I-RAVEN
it must not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from boolit.lab.raven.attributes import LOOKS
from boolit.lab.raven.chance import Chance
from boolit.lab.raven.panels import Panel, levels, occupied


def majority(candidates: Sequence[Panel], chance: Chance) -> int:
    """One of the favourites."""
    return chance.choice(favourites(candidates))


def favourites(candidates: Sequence[Panel]) -> list[int]:
    """The candidates whose values of number, position, type, size and colour are the most frequent, taken together.

    An answer among n of them is found with the chance 1/n: the mean of that over many problems is the solver's accuracy,
    without the luck of its draws.

    Example:
        >>> from boolit.lab.raven.panels import Entity
        >>> square, circle = (Entity(0, 2, 5, 0, 3),), (Entity(0, 5, 5, 0, 3),)
        >>> favourites([(circle,), (square,), (circle,), (circle,)])
        [0, 2, 3]
    """
    values = [list(_values(candidate)) for candidate in candidates]
    frequencies = Counter(value for own in values for value in own)
    scores = [sum(frequencies[value] for value in own) for own in values]
    return [index for index, score in enumerate(scores) if score == max(scores)]


def _values(panel: Panel) -> Iterator[Hashable]:
    for number, entities in enumerate(panel):
        yield number, "Number", len(entities)
        yield number, "Position", occupied(entities)
        for look in LOOKS:
            yield number, look, levels(entities, look)
