"""The activations of a model: which ones a conversion takes, and where they act."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from boolit.nn.gates import Activation

_HIDDEN = "ReLU ReLU6 LeakyReLU PReLU RReLU ELU CELU SELU GELU SiLU Mish Hardswish Hardtanh Tanh Softsign"
# These mostly compute probabilities, masks and step sizes, not hidden units, so they are replaced only on request.
_OTHERS = "Sigmoid Hardsigmoid LogSigmoid Softplus Tanhshrink Softshrink Hardshrink Threshold"
TABLE: dict[str, type[nn.Module]] = {
    "leaky_relu" if name == "LeakyReLU" else name.lower(): getattr(nn, name) for name in f"{_HIDDEN} {_OTHERS}".split()
}
POINTWISE_CLASSES = tuple(TABLE.values())
POINTWISE_NAMES = frozenset({*TABLE, "log_sigmoid"})
HIDDEN = [*TABLE][: len(_HIDDEN.split())]
CHOICES = {**TABLE, "glu": nn.GLU}

# Class names of the same functions in other libraries: NewGELUActivation, QuickGELU, ReLUSquaredActivation, Swish.
_WORDS = {"swish": "silu", **{name.replace("_", ""): name for name in HIDDEN}}
_LIKE = re.compile(
    rf"[a-z]*?(?P<word>{'|'.join(sorted(_WORDS, key=len, reverse=True))})(tanh|squared|python)?(activation|function|act)?"
)


class PairGate(nn.Module):
    """Gate over the channels of two tensors, in place of a product such as ``act(gate) * up`` or of a GLU.

    Args:
        gate: the activation.
        adjacent: whether the gate pairs neighboring channels instead of halves.
    """

    def __init__(self, gate: Activation, adjacent: bool) -> None:
        super().__init__()
        self.gate, self.adjacent = gate, adjacent

    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        """Apply the gate to both tensors, or to both halves of the first.

        Shape: two tensors of ``(…, C, …)``, or one of ``(…, 2C, …)``, to what the gate makes of 2C channels.
        """
        dim: Any = self.gate.dim
        if self.adjacent:
            pair = first.chunk(2, dim) if second is None else (first, second)
            first, second = torch.stack(pair, dim).flatten(dim - 1, dim), None
        result: Tensor = self.gate(first if second is None else torch.cat((first, second), dim))
        return result


class ActivationChoice(NamedTuple):
    """The activations to replace: torch's by name, others by class, and boolit's own if ``gates``."""

    names: frozenset[str]
    classes: tuple[type[nn.Module], ...]
    gates: bool

    def takes_module(self, module: nn.Module) -> bool:
        gate = module.gate if isinstance(module, PairGate) else module
        if isinstance(gate, Activation):
            kept = gate.spec == "identity" or gate.spec in set(TABLE) - self.names
            return gate.spec in self.names or isinstance(gate, self.classes) or (self.gates and not kept)
        return isinstance(module, self.classes) or _named_like(module) in self.names

    def takes_node(self, model: nn.Module, node: fx.Node) -> bool:
        if node.op == "call_module":
            return self.takes_module(model.get_submodule(str(node.target)))
        return node.op == "call_method" and str(node.target) in self.names


def choose(replace: Sequence[str | type[nn.Module]] | None) -> ActivationChoice:
    """Return the choice that ``replace`` describes; by default everything that serves hidden units."""
    chosen = [*HIDDEN, "glu"] if replace is None else [replace] if isinstance(replace, (str, type)) else replace
    classes = [item for item in chosen if isinstance(item, type) and issubclass(item, nn.Module)]
    for item in chosen:
        if item not in classes and item not in CHOICES:
            raise ValueError(f"cannot replace {item!r}: it is not an nn.Module class and none of {', '.join(CHOICES)}")
    names = [name for name, kind in CHOICES.items() if name in chosen or kind in classes]
    return ActivationChoice(frozenset(names), (*classes, *(CHOICES[name] for name in names)), replace is None)


def _named_like(module: nn.Module) -> str:
    match = _LIKE.fullmatch(type(module).__name__.casefold().replace("_", ""))
    bare = not any(True for _ in (*module.parameters(), *module.children()))
    return _WORDS[match["word"]] if match and bare else ""


def function_name(function: Any) -> str:
    """Return the name of a function of torch or Python without prefixes (``add`` for ``__radd__`` and ``add_``)."""
    package = str(getattr(function, "__module__", None) or "torch").split(".")[0]
    name = str(getattr(function, "__name__", ""))
    if name == "__get__":
        name = str(getattr(function.__self__, "__name__", ""))
    if name.startswith("__"):
        name = re.sub(r"^[ri](?=(add|sub|mul|div|truediv|floordiv|pow|and|or|xor)$)", "", name.strip("_"))
    return name.removesuffix("_") if package in ("torch", "_operator", "builtins", "math") else ""


def _functions() -> Iterator[tuple[Any, str]]:
    for package in (F, torch, Tensor, operator):
        for attribute in dir(package):
            function = getattr(package, attribute, None)
            name = function_name(function) if callable(function) else ""
            if name in POINTWISE_NAMES | {"glu", "mul", "view", "reshape"}:
                yield function, name


# Functions whose calls can be replaced. torch.compile can look them up here, but cannot run `function_name`.
REPLACEABLE = dict(_functions())


class Place(NamedTuple):
    """Position of a call: the module whose forward makes it, the name, and its number among the calls of that name."""

    owner: str
    call: str
    number: int


_NOWHERE = Place("", "", 0)


@dataclass(frozen=True, eq=False)
class Site:
    """A place where an activation acts: the calls of a module or of a function."""

    name: str
    was: str
    module: str | None = None
    nodes: tuple[fx.Node, ...] = ()
    factor: Fraction = Fraction(1)
    place: Place = _NOWHERE
    pair: str = ""  # "product" for a gate over two tensors, "glu" for one over two halves


def places(graph: fx.Graph) -> dict[fx.Node, Place]:
    """Return the place of every call. Calls made by different calls of their owner have the same place."""
    counts: Counter[tuple[str, str]] = Counter()
    result: dict[fx.Node, Place] = {}
    for node in graph.nodes:
        if node.op in ("call_method", "call_module"):
            stack = [*node.meta["nn_module_stack"]][: -1 if node.op == "call_module" else None]
            key = (stack[-1] if stack else "", str(node.target))
            result[node] = Place(owner(node), str(node.target), counts[key])
            counts[key] += 1
    return result


def find_sites(model: nn.Module, graph: fx.Graph, choice: ActivationChoice) -> list[Site]:
    """Return every place where a chosen activation acts, each with a unique name."""
    taken = {name for name, _ in model.named_modules(remove_duplicate=False)}
    calls: dict[Place, list[fx.Node]] = {}
    for node, place in places(graph).items():
        if place.call and choice.takes_node(model, node):
            calls.setdefault(place, []).append(node)
    seen: set[str] = set()
    sites = []
    for place, nodes in calls.items():
        module = model.get_submodule(place.call) if nodes[0].op == "call_module" else None
        pair = "glu" if isinstance(module, nn.GLU) or (module is None and place.call == "glu") else ""
        factor = Fraction(1, 2) if pair else Fraction(1)
        if module is None:
            name = _unique(child(place.owner, place.call), taken)
            sites.append(Site(name, f"{place.call}(…)", None, tuple(nodes), factor, place, pair))
            continue
        name = _unique(place.call, taken) if place.call in seen else place.call
        seen.add(place.call)
        gate = module.gate if isinstance(module, PairGate) else module
        if isinstance(module, PairGate):
            pair = "product" if len(nodes[0].all_input_nodes) == 2 else "glu"
        if isinstance(gate, Activation):
            factor = gate.feature_factor * (2 if pair == "product" else 1)
        sites.append(Site(name, _describe(gate), place.call, tuple(nodes), factor, place, pair))
    return sites


def untraced_sites(model: nn.Module, choice: ActivationChoice) -> list[Site]:
    """Return the activation modules of a model without a graph."""
    return [
        Site(name, _describe(module), name, place=Place(name.rpartition(".")[0], name, 0))
        for name, module in model.named_modules()
        if name and choice.takes_module(module) and not isinstance(module, nn.GLU)
    ]


def owner(node: fx.Node) -> str:
    """Return the path of the module whose forward makes a call."""
    stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return str(["", *stack][-2 if node.op == "call_module" and stack else -1])


def child(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _unique(name: str, taken: set[str]) -> str:
    new = next(each for each in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if each not in taken)
    taken.add(new)
    return new


def _describe(module: nn.Module) -> str:
    return module.spec if isinstance(module, Activation) else repr(module)
