"""What an estimator's parameters may be; checked when it is fitted, as scikit-learn asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any


def _whole(lowest: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= lowest


def _between(lowest: float, highest: float, *, lowest_too: bool) -> Callable[[object], bool]:
    def fits(value: object) -> bool:
        return isinstance(value, Real) and (lowest < float(value) < highest or (lowest_too and float(value) == lowest))

    return fits


def _or(special: object, rule: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is special or (isinstance(value, str) and value == special) or rule(value)


INFINITY = float("inf")
RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "hidden_layers": (_whole(1), "a whole number from 1"),
    "width": (_or(None, _whole(1)), "None or a whole number from 1"),
    "budget": (_or(None, _whole(1)), "None or a whole number of parameters from 1"),
    "normalisation": (lambda value: value in ("batch", "layer", "none"), "'batch', 'layer' or 'none'"),
    "dropout": (_between(0, 1, lowest_too=True), "a number from 0 and below 1"),
    "learning_rate": (_between(0, INFINITY, lowest_too=False), "a finite number above 0"),
    "weight_decay": (_between(0, INFINITY, lowest_too=True), "a finite number from 0"),
    "batch_size": (_or("auto", _whole(2)), "'auto' or a whole number from 2"),
    "max_iter": (_whole(1), "a whole number of epochs from 1"),
    "validation_fraction": (_between(0, 1, lowest_too=False), "a number between 0 and 1"),
    "patience": (_whole(1), "a whole number of epochs from 1"),
}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuses the first parameter that breaks its rule.

    Example:
        >>> check_settings({"dropout": 0.5})
        >>> check_settings({"dropout": 1.0})
        Traceback (most recent call last):
        ValueError: dropout=1.0 is not allowed; give a number from 0 and below 1
    """
    for name, value in settings.items():
        fits, rule = RULES.get(name, (lambda _: True, ""))
        if not fits(value):
            raise ValueError(f"{name}={value!r} is not allowed; give {rule}")
    if settings.get("width") is not None and settings.get("budget") is not None:
        raise ValueError(f"width={settings['width']} and budget={settings['budget']} exclude each other; give one of them")
