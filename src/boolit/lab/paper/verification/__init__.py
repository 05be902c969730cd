"""The paper's numbers against ours: what can be checked without training anything.

A family is a function that yields checks, and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from boolit.lab.common.errors import UserError
from boolit.lab.paper.verification import gates, heads, mnist, networks
from boolit.lab.paper.verification.check import Check, Value

__all__ = ["FAMILIES", "Check", "CheckFamily", "Value", "choose", "verify"]


class CheckFamily(NamedTuple):
    """Checks that belong together; ``source`` is where the paper has them, by its labels."""

    name: str
    title: str
    source: str
    checks: Callable[[], Iterable[Check]]


FAMILIES = (
    CheckFamily("normalisation", "Mean and sd under N(0,1) inputs", "tab:normalization-constants", gates.check_normalisation),
    CheckFamily("difference", "Largest |AIL − IL|", "a:diff", gates.check_difference),
    CheckFamily("identities", "Identities of the gates", "eq:and_il … eq:xnor_ail", gates.check_identities),
    CheckFamily("maps", "Channels in → out, and widths", "tab:transfer-nparam-big, tab:tmnx", heads.check_maps),
    CheckFamily("transfer", "Parameters of the transfer heads", "tab:transfer-nparam-big, -512", heads.check_heads),
    CheckFamily("mnist-mlp", "Parameters of the MLPs on MNIST", "tab:mlp-mnist", mnist.check_mlps),
    CheckFamily("mnist-cnn", "Widths and parameters of the CNNs on MNIST", "tab:cnn-mnist", mnist.check_cnns),
    CheckFamily(
        "resnet50-cifar", "Parameters of the ResNet-50s on CIFAR", "tab:resnet50-cifar10, -cifar100", networks.check_resnets
    ),
    CheckFamily("sran", "Parameters of SRAN on I-RAVEN", "tab:sran", networks.check_sran),
    CheckFamily("tmn", "Widths and parameters of TMN and TMNx", "tab:tmn-og, tab:tmnx", networks.check_tmns),
)


def choose(names: Iterable[str]) -> list[CheckFamily]:
    """The named families in their own order; all of them if none is named.

    Example:
        >>> [family.name for family in choose(["maps", "difference"])]
        ['difference', 'maps']
    """
    wanted = set(names)
    known = [family.name for family in FAMILIES]
    for name in wanted.difference(known):
        raise UserError(f"unknown family of checks {name!r}; choose from {', '.join(known)}")
    return [family for family in FAMILIES if not wanted or family.name in wanted]


def verify(families: Iterable[CheckFamily] = FAMILIES) -> Iterator[tuple[CheckFamily, list[Check]]]:
    """Each family with its checks, computed as you iterate."""
    for family in families:
        yield family, list(family.checks())
