"""The eight candidates: leaves of a tree that has the answer as its root and changes one attribute at every level.

Where three attributes change, each has its right value four times among the candidates and a wrong one four times, so that
nothing can be told about the answer without the matrix. That is what I-RAVEN has over RAVEN, whose wrong candidates each change
one attribute.
"""

from __future__ import annotations

from boolit.lab.raven.attributes import Attribute
from boolit.lab.raven.chance import Chance
from boolit.lab.raven.changes import Change, changeable, look_change, number_changes, position_change
from boolit.lab.raven.panels import Modified, Panel, occupied
from boolit.lab.raven.rows import Strand

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
