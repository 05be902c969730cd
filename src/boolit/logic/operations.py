"""Boolean operations, their forms, and the programs that gates and ensembles are made of.

In logit space NOT is a change of sign, so one exact and one approximate formula for OR and for XNOR give every operation.
This file also reads and writes specs, the names of gates and ensembles; boolit/nn/specs.py explains them.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from torch.compiler import is_dynamo_compiling

FORMS = ("il", "ail", "nil", "nail")
EXTREMA = ("max", "min")
PAIRINGS = ("adjacent", "halves")
STRATEGIES = ("d", "p", "pu", "pl")


@dataclass(frozen=True)
class Operation:
    """A Boolean operation as ``±base(±x_0, ±x_1, …)``."""

    name: str
    base: Literal["or", "xnor"]
    flips: Literal["none", "all", "first", "second"] = "none"
    negated: bool = False

    def output_sign(self, k: int) -> int:
        """Return the sign of the result. XOR of k events folds, so its sign alternates with k."""
        if self.name == "xor":
            return -1 if k % 2 == 0 else 1
        return -1 if self.negated else 1


OPERATIONS = {
    operation.name: operation
    for operation in (
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
}


def is_normalized(form: str) -> bool:
    """Return whether the form shifts and scales its result to mean 0 and sd 1."""
    return form.startswith("n")


def is_approximate(form: str) -> bool:
    """Return whether the form is piecewise linear (AIL, NAIL)."""
    return form.endswith("ail")


@dataclass(frozen=True)
class Program:
    """Gates ``(operation, form)`` that share one grouping of the channels and are computed in one pass.

    Args:
        members: operation and form of each gate, such as ``(("or", "ail"), ("xnor", "ail"))``.
        strategy: ``d`` (duplicate) gives every gate all groups. A partition gives each gate its contiguous share of them:
            ``p`` equal shares; ``pu`` uneven shares, the first gates getting one group more; ``pl`` shares of
            ``groups // gates``, the last gate getting the rest.
        k: operands of one gate.
        pairing: ``adjacent`` groups channels (0, 1), (2, 3), …; ``halves`` groups i with i + C/k.
    """

    members: tuple[tuple[str, str], ...]
    strategy: str = "d"
    k: int = 2
    pairing: str = "adjacent"
    spec: str = field(init=False, compare=False, repr=False)
    approximate: bool = field(init=False, compare=False, repr=False)  # all gates are, so that bits suffice for the backward
    plans: dict[Any, Any] = field(init=False, compare=False, repr=False)  # kernel plans by dtype, shape, dim and device type

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("an ensemble needs at least one gate, got none")
        check_choice("strategy", self.strategy, STRATEGIES)
        check_choice("pairing", self.pairing, PAIRINGS)
        object.__setattr__(self, "k", as_group_size(self.k))
        for name, form in self.members:
            check_choice("operation", name, OPERATIONS)
            check_choice("form", form, FORMS)
            if self.k > 2 and OPERATIONS[name].flips in ("first", "second"):  # an implication
                raise ValueError(f"{name!r} is an operation of exactly 2 logits, so k={self.k} has no meaning for it; use k=2")
        alone = len(self.members) == 1 and self.strategy == "d"
        spec = format_spec(self.members, None if alone else self.strategy, self.k, self.pairing)
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "approximate", all(is_approximate(form) for _, form in self.members))
        object.__setattr__(self, "plans", {})

    def __reduce__(self) -> tuple[object, ...]:
        return Program, (self.members, self.strategy, self.k, self.pairing)

    @property
    def width_multiple(self) -> int:
        """What the number of channels must be a multiple of."""
        return self.k * len(self.members) if self.strategy == "p" else self.k

    def groups(self, channels: int) -> int:
        """Return the number of groups that the channels make. Raise ValueError if they do not divide."""
        if channels % self.width_multiple:
            raise not_a_multiple(self.spec, self.width_multiple, channels)
        return channels // self.k

    def shares(self, groups: int) -> tuple[tuple[int, int], ...]:
        """Return the first group and the number of groups of each member."""
        count = len(self.members)
        if self.strategy == "d":
            return ((0, groups),) * count
        sizes = [groups // count] * count
        if self.strategy == "pl":
            sizes[-1] += groups % count
        else:
            sizes = [size + (i < groups % count) for i, size in enumerate(sizes)]
        return tuple((sum(sizes[:i]), size) for i, size in enumerate(sizes))

    def out_channels(self, channels: int) -> int:
        """Return the number of output channels."""
        groups = self.groups(channels)
        return groups * len(self.members) if self.strategy == "d" else groups

    @staticmethod
    def parse(spec: str) -> Program:
        """Return the program that a spec of gates names. Raise ValueError if it names none."""
        if is_dynamo_compiling():  # which warns about caches and ignores them
            return _parse_program(spec)
        return _cached_program(spec)


def _parse_program(spec: str) -> Program:
    parts = split_spec(spec)
    if "+" in parts.body and parts.strategy is not None and not parts.has_ending:
        programs = [_parse_program(member) for member in parts.body.split("+")]
        if len({(program.k, program.pairing, program.strategy, len(program.members)) for program in programs}) == 1:
            members = tuple(program.members[0] for program in programs)
            return Program(members, parts.strategy, programs[0].k, programs[0].pairing)
    members = tuple(split_members(parts.body))
    if not members or not all(form for _, form in members) or (len(members) > 1 and not parts.strategy):
        raise ValueError(f"{spec!r} is not a gate or an ensemble of gates of one group size")
    return Program(members, parts.strategy or "d", parts.k, parts.pairing)


_cached_program = lru_cache(maxsize=4096)(_parse_program)


# ------------------------------------------------------------------------------------------------ specs as text


class SpecParts(NamedTuple):
    """A spec without its strategy and endings."""

    body: str
    strategy: str | None
    k: int
    pairing: str
    has_ending: bool


def split_spec(spec: str) -> SpecParts:
    """Split a spec into its body, strategy, group size and pairing."""
    body = spec.removesuffix("_halves")
    pairing = "adjacent" if body == spec else "halves"
    stem, _, digits = body.rpartition("_k")
    has_k = stem != "" and digits.isdecimal() and digits.isascii() and len(digits) < 10
    body, k = (stem, int(digits)) if has_k else (body, 2)
    head, _, last = body.rpartition("_")
    body, strategy = (head, last) if head and last in STRATEGIES else (body, None)
    return SpecParts(body, strategy, k, pairing, has_k or pairing == "halves")


def split_members(body: str) -> list[tuple[str, str]]:
    """Split words such as ``or_max_ail`` into members (name, form). Extrema have the form ``""``; [] means no valid spec."""
    words, rest = [], f"{body}_"
    vocabulary = sorted((*OPERATIONS, *FORMS, *EXTREMA), key=len, reverse=True)  # implied_by before its parts
    while rest:
        word = next((word for word in vocabulary if rest.startswith(f"{word}_")), None)
        if word is None:
            return []
        words.append(word)
        rest = rest[len(word) + 1 :]
    form = words.pop() if words[-1] in FORMS else ""
    if any(word in FORMS for word in words) or any(word in OPERATIONS for word in words) != bool(form):
        return []
    return [(word, form if word in OPERATIONS else "") for word in words]


def format_spec(members: Sequence[tuple[str, str]], strategy: str | None, k: int, pairing: str) -> str:
    """Return the spec of (name, form) members that share a group size and a pairing. Members without forms have ``""``."""
    ending = (f"_k{k}" if k != 2 else "") + (f"_{pairing}" if pairing != "adjacent" else "")
    suffix = f"_{strategy}" if strategy else ""
    forms = {form for _, form in members} - {""}
    if len(forms) > 1:
        return "+".join(format_spec([member], None, k, pairing) for member in members) + suffix
    return "_".join([*(name for name, _ in members), *forms]) + suffix + ending


# ------------------------------------------------------------------------------------------------ arguments


def check_choice(argument: str, value: object, choices: Iterable[str]) -> None:
    """Raise an error if a value is not among the choices."""
    names = ", ".join(choices)
    if not isinstance(value, str):
        raise TypeError(f"the {argument} is a string, got {type(value).__name__}; choose one of {names}")
    if value not in choices:
        raise ValueError(f"unknown {argument} {value!r}; choose one of {names}")


def as_int(name: str, value: object) -> int:
    """Return an argument as an int. Integers of numpy are accepted, 2.0 is not."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}={value!r} is not an integer; give an int") from None


def as_group_size(k: object, reader: str = "a gate") -> int:
    """Return the argument k as an int of at least 2."""
    size = as_int("k", k)
    if size < 2:
        raise ValueError(f"k={size} is not a group size: {reader} reads at least 2 channels")
    return size


def not_a_multiple(reader: str, width_multiple: int, channels: int) -> ValueError:
    """Return the error for a number of channels that does not divide."""
    below, above = channels - channels % width_multiple, channels + -channels % width_multiple
    near = f"{below} or {above}" if below else above
    return ValueError(f"{reader} needs a multiple of {width_multiple} channels, got {channels}; use {near}")
