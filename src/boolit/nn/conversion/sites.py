"""Where a model's activations act: its torch.fx graph, and which of torch's pointwise functions are in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from torch import fx, nn

from boolit.nn.activations import Activation, Pointwise
from boolit.nn.conv1x1 import Conv1x1, ConvTranspose1x1

# Which activations of a model a conversion takes: torch's pointwise ones, by name, as modules or as calls.

HIDDEN: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "rrelu": nn.RReLU,
    "elu": nn.ELU,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "hardswish": nn.Hardswish,
    "hardtanh": nn.Hardtanh,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
}

# Mostly probabilities and masks (squeeze-and-excitation, outputs), not hidden units: taken only when asked for.
OTHERS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "hardsigmoid": nn.Hardsigmoid,
    "logsigmoid": nn.LogSigmoid,
    "tanhshrink": nn.Tanhshrink,
    "softshrink": nn.Softshrink,
    "hardshrink": nn.Hardshrink,
    "threshold": nn.Threshold,
}

POINTWISE_CLASSES = (*HIDDEN.values(), *OTHERS.values())
POINTWISE_NAMES = frozenset({*HIDDEN, *OTHERS, "log_sigmoid"})


class ActivationChoice(NamedTuple):
    """The activations to replace: torch's by name, others by class."""

    names: frozenset[str]
    classes: tuple[type[nn.Module], ...]

    def takes_module(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        if isinstance(module, Pointwise):
            return module.name in self.names
        return isinstance(module, self.classes)

    def takes_call(self, node: fx.Node) -> bool:
        """Whether a traced function or method call is one of them."""
        return node.op in ("call_function", "call_method") and operation_name(node) in self.names

    def takes_attribute(self, value: object) -> bool:
        """Whether a value held by a layer (nn.TransformerEncoderLayer's) is one of them."""
        if isinstance(value, nn.Module):
            return self.takes_module(value)
        return callable(value) and function_name(value) in self.names


def choose(replace: Sequence[str | type[nn.Module]] | None) -> ActivationChoice:
    """The choice ``replace`` describes; by default every pointwise activation of torch that serves hidden units.

    Example:
        >>> sorted(choose(["relu", nn.GELU]).names)
        ['gelu', 'relu']
    """
    table = {**HIDDEN, **OTHERS}
    names = {name_of(item) for item in replace} if replace is not None else set(HIDDEN)
    classes = [item for item in replace or () if isinstance(item, type)]
    return ActivationChoice(frozenset(names - {""}), (*classes, *(table[name] for name in sorted(names - {""}))))


def name_of(item: str | type[nn.Module]) -> str:
    """The name torch's functions have for an entry of ``replace``; empty for a class of the user's own."""
    table = {**HIDDEN, **OTHERS}
    if isinstance(item, type) and issubclass(item, nn.Module):
        return next((name for name, kind in table.items() if kind is item), "")
    if item in table:
        return str(item)
    raise ValueError(f"cannot replace {item!r}: it is no nn.Module class and none of {', '.join(table)}")


def operation_name(node: fx.Node) -> str:
    """What a traced call is called, without the underscore of in-place variants; empty for a function not of torch."""
    return str(node.target).removesuffix("_") if node.op == "call_method" else function_name(node.target)


def function_name(function: object) -> str:
    """The name of a function of torch, Python's operators or builtins; empty for any other."""
    room = str(getattr(function, "__module__", None) or "torch").split(".")[0]
    known = room in ("torch", "_operator", "builtins", "math")
    return str(getattr(function, "__name__", "")).removesuffix("_") if known else ""


# A model as a torch.fx graph, and the places in it where an activation acts.

TRANSFORMER_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


class UntraceableError(ValueError):
    """torch.fx cannot follow the model's forward."""


@dataclass(frozen=True, eq=False)
class Site:
    """One place where an activation acts: a call in the graph, or the attribute of a transformer layer of torch."""

    name: str
    was: str
    module: str | None = None
    node: fx.Node | None = None
    factor: Fraction = Fraction(1)


class _Tracer(fx.Tracer):
    """Goes into everything but torch's layers and the activations."""

    def __init__(self, choice: ActivationChoice | None = None) -> None:
        # Without an argument it is made when a converted model is unpickled: fx remembers the class of the tracer.
        super().__init__()
        self._choice = choice or choose(None)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, (Activation, Conv1x1, ConvTranspose1x1, *TRANSFORMER_LAYERS)) or self._choice.takes_module(m)
        return whole or super().is_leaf_module(m, module_qualified_name)


def is_layer_of_torch(model: nn.Module, choice: ActivationChoice) -> bool:
    """Whether the model is itself something a trace does not go into."""
    return _Tracer(choice).is_leaf_module(model, "")


def trace(model: nn.Module, choice: ActivationChoice) -> fx.Graph:
    """The graph of ``model(x)``: arguments with plain defaults are taken to have them."""
    plain = {
        name: parameter.default
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is None or isinstance(parameter.default, (bool, int, float, str))
    }
    tracer = _Tracer(choice)
    try:
        graph = tracer.trace(model, concrete_args=plain)
    except Exception as error:
        raise UntraceableError(_untraceable(model, [path for path, _ in tracer.module_stack.values()], error)) from error
    for node in graph.nodes:
        # fx numbers the arguments it fixes, which would take their names away from callers,
        if node.op == "placeholder" and node.target.removesuffix("_1") in plain:
            node.target = node.target.removesuffix("_1")
        # and cannot pickle annotations that are strings.
        if isinstance(node.type, str):
            node.type = None
    return graph


def _untraceable(model: nn.Module, inside: list[str], error: Exception) -> str:
    place = f" in {inside[-1]}" if inside else ""
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return (
        f"torch.fx cannot trace {type(model).__name__}{place}: {reason}; convert the submodules that hold the activations "
        "one by one, for example model.head = convert(model.head, …).model"
    )


def find_sites(model: nn.Module, graph: fx.Graph | None, choice: ActivationChoice) -> list[Site]:
    """Every place where a chosen activation acts, each with a name of its own."""
    taken = {name for name, _ in model.named_modules(remove_duplicate=False)}
    modules = _module_calls(model, graph, choice, taken) if graph else ()
    calls = _function_calls(graph, choice, taken) if graph else ()
    found = [*modules, *calls, *_transformer_sites(model, choice)]
    order = {node: i for i, node in enumerate(graph.nodes)} if graph else {}
    return sorted(found, key=lambda site: order[site.node] if site.node else -1)


def untraced_sites(model: nn.Module, choice: ActivationChoice) -> list[Site]:
    """The activation modules of a model that has no graph."""
    sites = [Site(name, repr(module), name) for name, module in model.named_modules() if name and choice.takes_module(module)]
    inside = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, TRANSFORMER_LAYERS))
    return [site for site in sites if not site.name.startswith(inside)] + list(_transformer_sites(model, choice))


def owner(node: fx.Node) -> str:
    """The path of the module whose forward makes a call."""
    stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    if node.op == "call_module":
        stack = stack[:-1]
    return str(stack[-1]) if stack else ""


def unique(name: str, taken: set[str]) -> str:
    """The name, numbered as far as needed to be new, and taken from now on."""
    numbered = (f"{name}_{i}" for i in range(1, len(taken) + 2))
    new = next(candidate for candidate in (name, *numbered) if candidate not in taken)
    taken.add(new)
    return new


def child(parent: str, name: str) -> str:
    """The path of a module in another."""
    return f"{parent}.{name}" if parent else name


def _module_calls(model: nn.Module, graph: fx.Graph, choice: ActivationChoice, taken: set[str]) -> Iterator[Site]:
    seen: set[str] = set()
    for node in graph.find_nodes(op="call_module"):
        module = model.get_submodule(node.target)
        if choice.takes_module(module):
            name = unique(node.target, taken) if node.target in seen else node.target
            seen.add(node.target)
            factor = module.feature_factor if isinstance(module, Activation) else Fraction(1)
            yield Site(name, _describe(module), node.target, node, factor)


def _function_calls(graph: fx.Graph, choice: ActivationChoice, taken: set[str]) -> Iterator[Site]:
    for node in graph.nodes:
        if choice.takes_call(node):
            name = operation_name(node)
            yield Site(unique(child(owner(node), name), taken), f"{name}(…)", None, node)


def _transformer_sites(model: nn.Module, choice: ActivationChoice) -> Iterator[Site]:
    for name, module in model.named_modules():
        if isinstance(module, TRANSFORMER_LAYERS) and choice.takes_attribute(module.activation):
            was = module.activation
            yield Site(child(name, "activation"), repr(was) if isinstance(was, nn.Module) else f"{was.__name__}(…)")


def _describe(module: nn.Module) -> str:
    return module.spec if isinstance(module, Activation) else repr(module)
