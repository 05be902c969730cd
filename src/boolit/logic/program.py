"""What one pass over a tensor computes: some gates on groups of k channels, side by side (d) or each on its share (p)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from boolit.logic.vocabulary import FORMS, OPERATIONS, PAIRINGS, approximate, as_group_size, check_word

Strategy = Literal["d", "p"]


@dataclass(frozen=True)
class Program:
    """Gates ``(operation, form)`` sharing one grouping of the channels.

    A single gate is the duplicate ensemble of one member. ``uneven`` lets a partition give the first members one group
    more where the groups do not divide equally.
    """

    members: tuple[tuple[str, str], ...]
    strategy: Strategy = "d"
    k: int = 2
    pairing: str = "adjacent"
    uneven: bool = False
    approximate: bool = field(init=False, compare=False, repr=False)  # every gate is: then bits suffice for the backward
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("an ensemble needs at least one gate, got none")
        check_word("strategy", self.strategy, ("d", "p"))
        check_word("pairing", self.pairing, PAIRINGS)
        object.__setattr__(self, "k", as_group_size(self.k))
        for name, form in self.members:
            check_word("operation", name, OPERATIONS)
            check_word("form", form, FORMS)
            if self.k > 2 and not OPERATIONS[name].any_k:
                raise ValueError(f"{name!r} is an operation of exactly 2 logits, so k={self.k} has no meaning for it; use k=2")
        object.__setattr__(self, "approximate", all(approximate(form) for _, form in self.members))
        object.__setattr__(self, "_hash", hash((self.members, self.strategy, self.k, self.pairing, self.uneven)))

    def __hash__(self) -> int:
        """Computed once: every call looks its plan up by it."""
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        """Made anew where it is unpickled: strings hash differently in every process."""
        return Program, (self.members, self.strategy, self.k, self.pairing, self.uneven)

    @property
    def divisor(self) -> int:
        """What the number of channels must be a multiple of."""
        equal_shares = self.strategy == "p" and not self.uneven
        return self.k * len(self.members) if equal_shares else self.k

    def groups(self, channels: int) -> int:
        """How many groups of k the channels make; raises where they do not divide."""
        if channels % self.divisor:
            below, above = channels - channels % self.divisor, channels + -channels % self.divisor
            near = f"{below} or {above}" if below else above
            raise ValueError(f"{self.spec} needs a multiple of {self.divisor} channels, got {channels}; use {near}")
        return channels // self.k

    def shares(self, groups: int) -> tuple[tuple[int, int], ...]:
        """First group and number of groups of each member."""
        if self.strategy == "d":
            return ((0, groups),) * len(self.members)
        count = len(self.members)
        sizes = [groups // count + (i < groups % count) for i in range(count)]
        return tuple((sum(sizes[:i]), size) for i, size in enumerate(sizes))

    def out_channels(self, channels: int) -> int:
        """How many channels come out of that many."""
        return sum(size for _, size in self.shares(self.groups(channels)))

    @property
    def spec(self) -> str:
        """What messages call it: the spec a user would write."""
        ending = suffix(self.k, self.pairing)
        names, forms = zip(*self.members, strict=True)
        alone = len(names) == 1 and self.strategy == "d"
        strategy = "" if alone else f"_{self.strategy}{'u' if self.uneven else ''}"
        if len(set(forms)) == 1:
            return f"{'_'.join(names)}_{forms[0]}{strategy}{ending}"
        return "+".join(f"{name}_{form}{ending}" for name, form in self.members) + strategy

    def __str__(self) -> str:
        """The text `parse` reads; torch operators carry it."""
        gates = "+".join(f"{name}_{form}" for name, form in self.members)
        return f"{gates}:{self.strategy}{'u' if self.uneven else ''}:k{self.k}:{self.pairing}"

    @staticmethod
    @cache
    def parse(text: str) -> Program:
        """The inverse of ``str``."""
        gates, strategy, k, pairing = text.split(":")
        members = tuple((name, form) for name, _, form in (gate.rpartition("_") for gate in gates.split("+")))
        letter: Strategy = "p" if strategy[0] == "p" else "d"
        return Program(members, letter, int(k[1:]), pairing, strategy.endswith("u"))


def suffix(k: int, pairing: str) -> str:
    """How a spec says a group size other than 2 and a pairing other than adjacent."""
    return (f"_k{k}" if k != 2 else "") + (f"_{pairing}" if pairing != "adjacent" else "")
