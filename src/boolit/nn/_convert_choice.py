"""Which activations of a model a conversion takes: torch's pointwise ones, by name, as modules or as calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import fx, nn

from boolit.nn.baselines import Pointwise

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


class Choice(NamedTuple):
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


def choose(replace: Sequence[str | type[nn.Module]] | None) -> Choice:
    """The choice ``replace`` describes; by default every pointwise activation of torch that serves hidden units.

    Example:
        >>> sorted(choose(["relu", nn.GELU]).names)
        ['gelu', 'relu']
    """
    table = {**HIDDEN, **OTHERS}
    names = {name_of(item) for item in replace} if replace is not None else set(HIDDEN)
    classes = [item for item in replace or () if isinstance(item, type)]
    return Choice(frozenset(names - {""}), (*classes, *(table[name] for name in sorted(names - {""}))))


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
