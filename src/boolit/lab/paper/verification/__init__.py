"""Checks of the paper's numbers and claims that need no training.

A family of checks is a function that yields `Check` objects, with one line in `FAMILIES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, NamedTuple, TypeAlias, cast

from boolit.errors import UserError

Value: TypeAlias = int | float | str
Kind: TypeAlias = Literal["printed", "derived", "identity", "erratum", "claim"]
KINDS: dict[Kind, str] = {
    "printed": "printed in the paper",
    "derived": "derived here",  # from what the paper prints, such as the exact count behind "~16k"
    "identity": "identities",
    "erratum": "errata of the paper",
    "claim": "claims of its text",
}


@dataclass(frozen=True)
class Check:
    """A value of the paper, our value, and how far apart they may be.

    Args:
        expected: What ours must be if not the paper's value: an exact count that the paper rounds, or the right value where it
            has an error.
        kind: One of `KINDS`.

    Example:
        >>> Check("mean of OR_AIL", paper=0.68104, ours=0.6810370722, tolerance=5e-6).ok
        True
    """

    name: str
    paper: Value
    ours: Value
    expected: Value | None = None
    tolerance: float = 0.0
    kind: Kind = "printed"
    note: str = ""

    @property
    def target(self) -> Value:
        """The value that ours is compared with."""
        return self.paper if self.expected is None else self.expected

    @property
    def ok(self) -> bool:
        """Whether ours is the target, up to the tolerance. NaN never is."""
        if isinstance(self.target, str) or isinstance(self.ours, str):
            return self.target == self.ours
        return abs(self.ours - self.target) <= self.tolerance


class CheckFamily(NamedTuple):
    """A group of checks; ``source`` is where the paper has them, by its labels."""

    name: str
    title: str
    source: str
    checks: Callable[[], Iterable[Check]]


def _family(name: str, title: str, source: str, module: str, function: str) -> CheckFamily:
    # The module is imported when the checks are computed, so that --help does not import torch.
    def checks() -> Iterable[Check]:
        return cast("Iterable[Check]", getattr(import_module(f"{__name__}.{module}"), function)())

    return CheckFamily(name, title, source, checks)


FAMILIES = (
    _family("normalization", "Mean and sd under N(0,1) inputs", "tab:normalization-constants", "gates", "check_moments"),
    _family("difference", "Difference of AIL and IL", "a:diff", "gates", "check_difference"),
    _family("identities", "Identities of the gates", "eq:and_il … eq:xnor_ail", "gates", "check_identities"),
    _family("maps", "Channels in → out, and widths", "tab:transfer-nparam-big, tab:tmnx", "networks", "check_maps"),
    _family("transfer", "Parameters of the transfer heads", "tab:transfer-nparam-big, -512", "networks", "check_heads"),
    _family("mnist-mlp", "Parameters of the MLPs on MNIST", "tab:mlp-mnist", "networks", "check_mlps"),
    _family("mnist-cnn", "Widths and parameters of the CNNs on MNIST", "tab:cnn-mnist", "networks", "check_cnns"),
    _family("resnet50-cifar", "ResNet-50s on CIFAR", "tab:resnet50-cifar10, -cifar100", "networks", "check_resnets"),
    _family("sran", "Parameters of SRAN on I-RAVEN", "tab:sran", "networks", "check_sran"),
    _family("tmn", "Widths and parameters of TMN and TMNx", "tab:tmn-og, tab:tmnx", "networks", "check_tmns"),
    _family("tables", "Tables that follow from others", "tab:datasets, tab:ranking (hidden)", "text", "check_tables"),
    _family("claims", "Claims of the text against the printed tables", "claims.toml", "text", "check_claims"),
)


def choose(names: Iterable[str]) -> list[CheckFamily]:
    """Return the named families in their usual order, or all families if no name is given.

    Example:
        >>> [family.name for family in choose(["maps", "difference"])]
        ['difference', 'maps']
    """
    wanted, known = set(names), [family.name for family in FAMILIES]
    for name in wanted.difference(known):
        raise UserError(f"unknown family of checks {name!r}; choose from {', '.join(known)}")
    return [family for family in FAMILIES if not wanted or family.name in wanted]


def verify(families: Iterable[CheckFamily] = FAMILIES) -> Iterator[tuple[CheckFamily, list[Check]]]:
    """Yield each family with its checks, computed while iterating."""
    for family in families:
        yield family, list(family.checks())


def count_kinds(checks: Iterable[Check]) -> str:
    """Describe how many checks there are of each kind.

    Example:
        >>> count_kinds([Check("a", 1, 1), Check("b", 12, 10, expected=10, kind="erratum")])
        '1 printed in the paper, 1 errata of the paper'
    """
    counts = Counter(check.kind for check in checks)
    return ", ".join(f"{counts[kind]} {meaning}" for kind, meaning in KINDS.items() if counts[kind])
