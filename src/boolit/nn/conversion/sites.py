"""Which activations a conversion takes, by name, as modules or as calls, and where in a graph they act."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from torch import fx, nn

from boolit.nn.gates import Activation, Pointwise

_HIDDEN = "ReLU ReLU6 LeakyReLU PReLU RReLU ELU CELU SELU GELU SiLU Mish Hardswish Hardtanh Tanh Softsign"
# Mostly probabilities, masks and step sizes (squeeze-and-excitation, outputs), not hidden units: taken only when asked for.
_OTHERS = "Sigmoid Hardsigmoid LogSigmoid Softplus Tanhshrink Softshrink Hardshrink Threshold"
TABLE: dict[str, type[nn.Module]] = {
    "leaky_relu" if name == "LeakyReLU" else name.lower(): getattr(nn, name) for name in f"{_HIDDEN} {_OTHERS}".split()
}
HIDDEN = [*TABLE][: len(_HIDDEN.split())]
POINTWISE_CLASSES = tuple(TABLE.values())
POINTWISE_NAMES = frozenset({*TABLE, "log_sigmoid"})
TRANSFORMER_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)

# Classes that others write for the same functions: NewGELUActivation, QuickGELU, GELUTanh, ReLUSquaredActivation, Swish.
_WORDS = {"swish": "silu", **{name.replace("_", ""): name for name in HIDDEN}}
_LIKE = re.compile(
    rf"[a-z]*?(?P<word>{'|'.join(sorted(_WORDS, key=len, reverse=True))})(tanh|squared|python)?(activation|function|act)?"
)


class ActivationChoice(NamedTuple):
    """The activations to replace: torch's by name, others by class."""

    names: frozenset[str]
    classes: tuple[type[nn.Module], ...]

    def takes_module(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        if isinstance(module, Pointwise):
            return module.name in self.names
        return isinstance(module, self.classes) or named_like(module) in self.names

    def takes_call(self, node: fx.Node) -> bool:
        """Whether a traced function or method call is one of them."""
        return node.op in ("call_function", "call_method") and operation_name(node) in self.names

    def takes_attribute(self, value: object) -> bool:
        """Whether a value held by a layer (nn.TransformerEncoderLayer's) is one of them."""
        return self.takes_module(value) if isinstance(value, nn.Module) else function_name(value) in self.names


def choose(replace: Sequence[str | type[nn.Module]] | None) -> ActivationChoice:
    """The choice ``replace`` describes; by default every pointwise activation of torch that serves hidden units."""
    chosen = HIDDEN if replace is None else replace
    classes = [item for item in chosen if isinstance(item, type) and issubclass(item, nn.Module)]
    for item in chosen:
        if item not in classes and item not in TABLE:
            raise ValueError(f"cannot replace {item!r}: it is no nn.Module class and none of {', '.join(TABLE)}")
    names = [name for name, kind in TABLE.items() if name in chosen or kind in classes]
    return ActivationChoice(frozenset(names), (*classes, *(TABLE[name] for name in names)))


def named_like(module: nn.Module) -> str:
    """What a module without parameters or parts is, by the name of its class: ``gelu`` for a NewGELUActivation."""
    found = _LIKE.fullmatch(type(module).__name__.casefold().replace("_", ""))
    alone = not isinstance(module, Activation) and not any(True for _ in (*module.parameters(), *module.children()))
    return _WORDS[found["word"]] if found and alone else ""


def operation_name(node: fx.Node) -> str:
    """What a traced call is called, without the underscore of in-place variants; empty for a function not of torch."""
    return str(node.target).removesuffix("_") if node.op == "call_method" else function_name(node.target)


def function_name(function: Any) -> str:
    """The name of a function of torch, Python's operators or builtins (``add`` for ``__radd__``); empty for any other."""
    room = str(getattr(function, "__module__", None) or "torch").split(".")[0]
    name = str(getattr(function, "__name__", ""))
    if name == "__get__":
        name = str(getattr(function.__self__, "__name__", ""))
    if name.startswith("__"):
        name = re.sub(r"^[ri](?=(add|sub|mul|div|truediv|floordiv|pow|and|or|xor)$)", "", name.strip("_"))
    return name.removesuffix("_") if room in ("torch", "_operator", "builtins", "math") else ""


class Place(NamedTuple):
    """Where a call is made: the module whose forward makes it, the name, and which of its calls of that name it is."""

    owner: str
    call: str
    number: int


NOWHERE = Place("", "", 0)


@dataclass(frozen=True, eq=False)
class Site:
    """One place where an activation acts: its calls in the graph, or the attribute of a transformer layer of torch."""

    name: str
    was: str
    module: str | None = None
    nodes: tuple[fx.Node, ...] = ()
    factor: Fraction = Fraction(1)
    place: Place = NOWHERE


def places(graph: fx.Graph) -> dict[fx.Node, Place]:
    """The place of every call; calls that differ only in which call of their owner they belong to have the same."""
    counts: Counter[tuple[str, str]] = Counter()
    found: dict[fx.Node, Place] = {}
    numbers: set[fx.Node] = set()
    for node in graph.nodes:
        name = str(node.target) if node.op == "call_module" else operation_name(node)
        asked = name == "size" or (name == "getattr" and node.args[1] == "shape")
        if asked or (node.op == "call_function" and node.all_input_nodes and numbers.issuperset(node.all_input_nodes)):
            numbers.add(node)  # arithmetic of sizes, which is no call of torch's when the model runs
        elif node.op.startswith("call_"):
            stack = [*node.meta.get("nn_module_stack", {})][: -1 if node.op == "call_module" else None]
            key = (stack[-1] if stack else "", name)
            found[node] = Place(owner(node), name, counts[key])
            counts[key] += 1
    return found


def find_sites(model: nn.Module, graph: fx.Graph | None, choice: ActivationChoice) -> list[Site]:
    """Every place where a chosen activation acts, each with a name of its own."""
    taken = {name for name, _ in model.named_modules(remove_duplicate=False)}
    found: dict[Place, list[fx.Node]] = {}
    for node, place in places(graph).items() if graph else ():
        if choice.takes_call(node) or (node.op == "call_module" and choice.takes_module(model.get_submodule(place.call))):
            found.setdefault(place, []).append(node)
    seen: set[str] = set()
    sites = []
    for place, nodes in found.items():
        if nodes[0].op == "call_module":
            module = model.get_submodule(place.call)
            name = unique(place.call, taken) if place.call in seen else place.call
            seen.add(place.call)
            factor = module.feature_factor if isinstance(module, Activation) else Fraction(1)
            sites.append(Site(name, describe_activation(module), place.call, tuple(nodes), factor, place))
        else:
            name = unique(child(place.owner, place.call), taken)
            sites.append(Site(name, f"{place.call}(…)", None, tuple(nodes), place=place))
    return [*_transformer_sites(model, choice), *sites]


def untraced_sites(model: nn.Module, choice: ActivationChoice) -> list[Site]:
    """The activation modules of a model that has no graph."""
    inside = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, TRANSFORMER_LAYERS))
    named = [(name, module) for name, module in model.named_modules() if name and not name.startswith(inside)]
    sites = [(name, module) for name, module in named if choice.takes_module(module)]
    found = [Site(name, describe_activation(one), name, place=Place(name.rpartition(".")[0], name, 0)) for name, one in sites]
    return [*found, *_transformer_sites(model, choice)]


def owner(node: fx.Node) -> str:
    """The path of the module whose forward makes a call."""
    stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return str(["", *stack][-2 if node.op == "call_module" and stack else -1])


def unique(name: str, taken: set[str]) -> str:
    """The name, numbered as far as needed to be new, and taken from now on."""
    new = next(one for one in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if one not in taken)
    taken.add(new)
    return new


def child(parent: str, name: str) -> str:
    """The path of a module in another."""
    return f"{parent}.{name}" if parent else name


def describe_activation(module: nn.Module) -> str:
    """An activation as the report names it."""
    return module.spec if isinstance(module, Activation) else repr(module)


def _transformer_sites(model: nn.Module, choice: ActivationChoice) -> Iterator[Site]:
    for name, module in model.named_modules():
        if isinstance(module, TRANSFORMER_LAYERS) and choice.takes_attribute(module.activation):
            was = module.activation
            yield Site(child(name, "activation"), repr(was) if isinstance(was, nn.Module) else f"{was.__name__}(…)")
