"""Words and order of a table's rows and columns."""

from __future__ import annotations

from collections.abc import Iterable

from boolit.lab.results.statistics import Metric
from boolit.nn import activation, known_specs


def map_of(spec: str) -> str:
    """Channels in → out of an activation; nothing for a name that is no spec.

    Example:
        >>> map_of("or_and_xnor_ail_d"), map_of("a linear layer only")
        ('2→3', '')
    """
    try:
        into, out = activation(spec).map
    except ValueError:
        return ""
    return f"{into}→{out}"


def by_family(spec: str) -> tuple[int, str]:
    """A key that sorts specs as `boolit.nn.known_specs` does, pointwise ones first; others follow by name."""
    known = known_specs()
    return (known.index(spec) if spec in known else len(known)), spec


def metric_label(metric: Metric) -> str:
    """A metric in words.

    Example:
        >>> metric_label(Metric("test_accuracy"))
        'test accuracy (%)'
    """
    return metric.name.replace("_", " ") + (" (%)" if metric.percent else "")


def amounts(numbers: Iterable[int]) -> dict[int, str]:
    """Numbers in a few figures, or in full if some could not be told apart.

    Example:
        >>> amounts([36, 16384, 4000000]), amounts([65501, 65502])
        ({36: '36', 16384: '16.4k', 4000000: '4M'}, {65501: '65501', 65502: '65502'})
    """
    numbers = list(dict.fromkeys(numbers))
    short = {number: _short(number) for number in numbers}
    return short if len(set(short.values())) == len(numbers) else {number: str(number) for number in numbers}


def _short(number: int) -> str:
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return str(number)
