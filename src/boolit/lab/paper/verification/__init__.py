"""The paper's numbers against ours: what can be checked without training anything.

A family is a function that yields checks, and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import NamedTuple, cast

from boolit.errors import UserError
from boolit.lab.paper.verification.check import Check, Value

__all__ = ["FAMILIES", "Check", "CheckFamily", "Value", "choose", "verify"]


class CheckFamily(NamedTuple):
    """Checks that belong together; ``source`` is where the paper has them, by its labels."""

    name: str
    title: str
    source: str
    checks: Callable[[], Iterable[Check]]


def _in(module: str, name: str) -> Callable[[], Iterable[Check]]:
    """A function of a module of this folder, which is imported when it is called."""
    return lambda: cast("Iterable[Check]", getattr(import_module(f"{__name__}.{module}"), name)())


FAMILIES = (
    CheckFamily(
        "normalisation", "Mean and sd under N(0,1) inputs", "tab:normalization-constants", _in("gates", "check_moments")
    ),
    CheckFamily("difference", "Largest |AIL − IL|", "a:diff", _in("gates", "check_difference")),
    CheckFamily("identities", "Identities of the gates", "eq:and_il … eq:xnor_ail", _in("gates", "check_identities")),
    CheckFamily("maps", "Channels in → out, and widths", "tab:transfer-nparam-big, tab:tmnx", _in("heads", "check_maps")),
    CheckFamily("transfer", "Parameters of the transfer heads", "tab:transfer-nparam-big, -512", _in("heads", "check_heads")),
    CheckFamily("mnist-mlp", "Parameters of the MLPs on MNIST", "tab:mlp-mnist", _in("mnist", "check_mlps")),
    CheckFamily("mnist-cnn", "Widths and parameters of the CNNs on MNIST", "tab:cnn-mnist", _in("mnist", "check_cnns")),
    CheckFamily(
        "resnet50-cifar",
        "Parameters of the ResNet-50s on CIFAR",
        "tab:resnet50-cifar10, -cifar100",
        _in("networks", "check_resnets"),
    ),
    CheckFamily("sran", "Parameters of SRAN on I-RAVEN", "tab:sran", _in("networks", "check_sran")),
    CheckFamily("tmn", "Widths and parameters of TMN and TMNx", "tab:tmn-og, tab:tmnx", _in("networks", "check_tmns")),
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
    """Each family with its checks, computed as you iterate, by one thread: all of it is small."""
    from boolit.lab.common.parallel import torch_threads  # with torch, for which a list of the families need not wait

    for family in families:
        with torch_threads(1):
            checks = list(family.checks())
        yield family, checks
