"""The bars boolit sets itself: as ratios of our figure to another's, each of them at most this."""

from __future__ import annotations

import boolit
from boolit.lab.bench.candidates import program_of
from boolit.logic.vocabulary import approximate
from boolit.nn import Gate

CALL = 2.5  # an 8×8 call against relu's
BITS_KEPT = 1 / 8  # bytes an input element, of an approximate gate


def time_bars(spec: str) -> dict[str, float]:
    """Bars on the time of forward and backward, by what it is compared with.

    Example:
        >>> time_bars("or_ail")
        {'relu': 0.7, 'published': 0.05}
        >>> time_bars("xnor_nil")
        {'silu': 1.0, 'published': 0.2}
    """
    program = program_of(spec)
    if program is None:
        return {}
    kinds = {approximate(form) for _, form in program.members}
    if len(kinds) > 1:
        return {}
    bars = {"published": 1 / 20 if kinds == {True} else 1 / 5}
    if isinstance(boolit.activation(spec), Gate):
        return ({"relu": 0.7} if kinds == {True} else {"silu": 1.0}) | bars
    three = {("or", "ail"), ("and", "ail"), ("xnor", "ail")}
    return ({"silu": 1.0} if program.strategy == "d" and set(program.members) == three else {}) | bars


def call_bar(spec: str) -> float | None:
    """The bar on the time of a small call against relu's."""
    return CALL if program_of(spec) else None


def kept_bar(spec: str, itemsize: int) -> float | None:
    """The bar on the bytes kept for backward per input element: one bit for an approximate gate, the input for an exact one."""
    module = boolit.activation(spec)
    if not isinstance(module, Gate):
        return None
    return BITS_KEPT if approximate(module.form) else float(itemsize)
