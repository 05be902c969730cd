"""The words: which Boolean operations there are, how each follows from OR or XNOR by changing signs, and what is no word.

In logit space NOT is a change of sign, so one exact and one approximate formula for OR and for XNOR give every operation.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Base = Literal["or", "xnor"]
FORMS = ("il", "ail", "nil", "nail")
PAIRINGS = ("adjacent", "halves")


@dataclass(frozen=True)
class Operation:
    """A Boolean operation as ``±base(±x_0, ±x_1, …)``."""

    name: str
    base: Base
    flips: Literal["none", "all", "first", "second"] = "none"
    negated: bool = False

    @property
    def any_k(self) -> bool:
        """Whether the operation is defined for more than two operands (an implication is not)."""
        return self.flips in ("none", "all")

    def input_signs(self, k: int) -> tuple[int, ...]:
        """The sign each of the k operands is multiplied with before the base is applied."""
        flipped = {"none": (), "all": range(k), "first": (0,), "second": (1,)}[self.flips]
        return tuple(-1 if i in flipped else 1 for i in range(k))

    def output_sign(self, k: int) -> int:
        """The sign of the result; XOR of k events folds, so its sign alternates with k."""
        if self.name == "xor":
            return -1 if k % 2 == 0 else 1
        return -1 if self.negated else 1


_ALL = (
    Operation("and", "or", "all", negated=True),
    Operation("or", "or"),
    Operation("xnor", "xnor"),
    Operation("nand", "or", "all"),
    Operation("nor", "or", negated=True),
    Operation("xor", "xnor", negated=True),
    Operation("implies", "or", "first"),
    Operation("nimplies", "or", "first", negated=True),
    Operation("implied_by", "or", "second"),
    Operation("nimplied_by", "or", "second", negated=True),
)
OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ALL}


def normalised(form: str) -> bool:
    """Whether the form shifts and scales its result to mean 0 and sd 1."""
    return form.startswith("n")


def approximate(form: str) -> bool:
    """Whether the form is piecewise linear (AIL, NAIL)."""
    return form.endswith("ail")


def check_word(what: str, word: object, known: Iterable[str]) -> None:
    """Refuses a word that is not among the known ones."""
    choices = tuple(known)
    if not isinstance(word, str):
        raise TypeError(f"the {what} is a string, got {type(word).__name__}; choose one of {', '.join(choices)}")
    if word not in choices:
        raise ValueError(f"unknown {what} {word!r}; choose one of {', '.join(choices)}")


def as_int(name: str, value: object) -> int:
    """The argument as an int: numpy's integers are integers, 2.0 and True are not."""
    if type(value) is int:
        return value
    try:
        if "bool" not in str(getattr(value, "dtype", type(value))):
            return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    fix = f"write {name}={int(value)}" if isinstance(value, float) and value.is_integer() else "give an int"
    raise TypeError(f"{name}={value!r} is not an integer; {fix}")


def as_group_size(k: object, reader: str = "a gate") -> int:
    """The argument k as an int of at least 2."""
    size = as_int("k", k)
    if size < 2:
        raise ValueError(f"k={size} is not a group size: {reader} reads at least 2 channels")
    return size
