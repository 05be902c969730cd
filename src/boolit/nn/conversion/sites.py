"""The activations of a model: which ones a conversion takes, and where they act."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn.conversion.tracing import Node, Place, function_name
from boolit.nn.gates import Activation

_HIDDEN = "ReLU ReLU6 LeakyReLU PReLU RReLU ELU CELU SELU GELU SiLU Mish Hardswish Hardtanh Tanh Softsign"
# These mostly compute probabilities, masks and step sizes, not hidden units, so they are replaced only on request.
_OTHERS = "Sigmoid Hardsigmoid LogSigmoid Softplus Tanhshrink Softshrink Hardshrink Threshold"
TABLE: dict[str, type[nn.Module]] = {
    "leaky_relu" if name == "LeakyReLU" else name.lower(): getattr(nn, name) for name in f"{_HIDDEN} {_OTHERS}".split()
}
POINTWISE_NAMES = frozenset({*TABLE, "log_sigmoid"})
HIDDEN = [*TABLE][: len(_HIDDEN.split())]
CHOICES = {**TABLE, "glu": nn.GLU}

# Class names of the same functions in other libraries: NewGELUActivation, QuickGELU, ReLUSquaredActivation, Swish.
_WORDS = {"swish": "silu", **{name.replace("_", ""): name for name in HIDDEN}}
_LIKE = re.compile(rf"({'|'.join(sorted(_WORDS, key=len, reverse=True))})(tanh|squared|python)?(activation|function|act)?$")

# Functions whose calls can be redirected. torch.compile can look them up here, but cannot run `function_name`.
REDIRECTABLE = {
    function: name
    for package in (F, torch, Tensor, operator)
    for attribute in dir(package)
    if callable(function := getattr(package, attribute, None))
    and (name := function_name(function)) in POINTWISE_NAMES | {"glu", "mul", "view", "reshape"}
}


class PairGate(nn.Module):
    """Gate over the channels of two tensors, in place of a product such as ``act(gate) * up``.

    Args:
        gate: an activation that pairs halves.
    """

    def __init__(self, gate: Activation) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Apply the gate to both tensors.

        Shape: two tensors of ``(…, C, …)`` to what the gate makes of 2C channels.
        """
        result: Tensor = self.gate(torch.cat((first, second), self.gate.dim))  # type: ignore[arg-type]
        return result


class ActivationChoice(NamedTuple):
    """The activations to replace: torch's by name, others by class, and boolit's own if ``gates``."""

    names: frozenset[str]
    classes: tuple[type[nn.Module], ...]
    gates: bool

    def takes(self, module: nn.Module) -> bool:
        """Whether the module is an activation to replace."""
        gate = module.gate if isinstance(module, PairGate) else module
        if isinstance(gate, Activation):
            kept = gate.spec == "identity" or gate.spec in set(TABLE) - self.names
            return gate.spec in self.names or isinstance(gate, self.classes) or (self.gates and not kept)
        match = _LIKE.search(type(module).__name__.casefold().replace("_", ""))
        bare = not any(True for _ in (*module.parameters(), *module.children()))
        return isinstance(module, self.classes) or bool(match and bare and _WORDS[match[1]] in self.names)


def choose(replace: Sequence[str | type[nn.Module]] | None) -> ActivationChoice:
    """Return the choice that ``replace`` describes; by default everything that serves hidden units."""
    chosen = [*HIDDEN, "glu"] if replace is None else [replace] if isinstance(replace, (str, type)) else replace
    classes = [item for item in chosen if isinstance(item, type) and issubclass(item, nn.Module)]
    for item in chosen:
        if item not in classes and item not in CHOICES:
            raise ValueError(f"cannot replace {item!r}: it is not an nn.Module class and none of {', '.join(CHOICES)}")
    names = [name for name, kind in CHOICES.items() if name in chosen or kind in classes]
    return ActivationChoice(frozenset(names), (*classes, *(CHOICES[name] for name in names)), replace is None)


@dataclass(frozen=True, eq=False)
class Site:
    """A place where an activation acts: the calls of a module or of a function.

    ``factor`` is the number of output channels per input channel. ``pair`` is "product" for a product or gate of two tensors
    and "glu" for one of two halves. ``factor_site`` is the activation of one factor of a product.
    """

    name: str
    was: str
    place: Place
    nodes: tuple[Node, ...]
    module: nn.Module | None
    factor: Fraction
    pair: str
    factor_site: Site | None = None


def find_sites(model: nn.Module, nodes: Iterable[Node], choice: ActivationChoice) -> list[Site]:
    """Return every place where a chosen activation acts, each with a unique name."""
    calls: dict[Place, list[Node]] = {}
    for node in nodes:
        if node.place and (choice.takes(node.module) if node.module else node.name in choice.names):
            calls.setdefault(node.place, []).append(node)
    names = {name for name, _ in model.named_modules(remove_duplicate=False)}
    sites: list[Site] = []
    for place, called in calls.items():
        module = called[0].module
        if module is not None:
            first = all(site.place.call != place.call for site in sites)
            gate: nn.Module | None = module.gate if isinstance(module, PairGate) else module
            was = gate.spec if isinstance(gate, Activation) else repr(gate)
            pair = "product" if isinstance(module, PairGate) else "glu" if isinstance(module, nn.GLU) else ""
            name = place.call if first else _unique(place.call, names)
        else:
            gate, was, pair = None, f"{place.call}(…)", "glu" if place.call == "glu" else ""
            name = _unique(f"{place.owner}.{place.call}" if place.owner else place.call, names)
        factor = gate.feature_factor if isinstance(gate, Activation) else Fraction(1, 2 if pair == "glu" else 1)
        factor *= 2 if pair == "product" else 1
        sites.append(Site(name, was, place, tuple(called), module, factor, pair))
    return sites


def _unique(name: str, taken: set[str]) -> str:
    new = next(each for each in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if each not in taken)
    taken.add(new)
    return new
