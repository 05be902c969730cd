"""The activations of a model: which ones a conversion takes, where they act, and how new ones take their place."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.overrides import _get_current_function_mode_stack as mode_stack

from boolit.nn.conversion.tracing import Node, Place, Trace, function_name
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
    and (name := function_name(function)) in POINTWISE_NAMES | {"glu", "mul", "positive"}
}


class PairGate(nn.Module):
    """A gate of two tensors that pairs channel i of both and replaces a product such as ``act(gate) * up``."""

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


Replacement = tuple[str, int, str]  # the spec, dimension and `Site.pair` of the activation that a site gets
Plan = dict[str, dict[int, str]]  # the submodules that calls are redirected to, by name and number of the call


class _Redirection(TorchFunctionMode):
    """Counts the calls of functions in one forward and redirects those in the plan.

    It is paused while a nested module with its own redirection runs. torch.compile traces it with ``fullgraph=True``.
    """

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        super().__init__()
        self.module, self.plan, self.paused = module, plan, 0
        self.counts = dict.fromkeys(plan, -1)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = REDIRECTABLE.get(func, "")
        if func is Tensor.unflatten:
            func = torch.unflatten  # torch.compile cannot trace the method inside a mode
        if self.paused or name not in self.plan:
            return func(*args, **kwargs)
        self.counts[name] += 1
        target = self.plan[name].get(self.counts[name])
        if target is None:
            return func(*args, **kwargs)
        module = self.module.get_submodule(target)
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        return module(*given[: 2 if isinstance(module, PairGate) else 1])


class RedirectedForward:
    """The forward of a module whose calls of functions are redirected; set as its instance attribute ``forward``.

    The class of the module, its forward and its parameters stay what they are. Copies and pickles refer to the copy. A second
    conversion wraps the first one, whose redirected calls it does not see.
    """

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        self.module, self.plan, self.inner = module, plan, module.__dict__.get("forward")
        self.turns = ("positive" in plan) + getattr(self.inner, "turns", 0)
        if self.turns > 1:
            raise ValueError("two conversions give the calls of shared modules different activations; convert the original")

    @property
    def _forward(self) -> Any:
        return self.inner or partial(type(self.module).forward, self.module)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._forward)

    @property
    def __code__(self) -> Any:
        """The code of the original forward, which torch.export reads."""
        return type(self.module).forward.__code__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original forward with its calls redirected."""
        outer = [mode for mode in mode_stack() if isinstance(mode, _Redirection) and mode.module is not self.module]
        for mode in outer:
            mode.paused += 1
        try:
            with _Redirection(self.module, self.plan):
                return self._forward(*args, **kwargs)
        finally:
            for mode in outer:
                mode.paused -= 1


class Turn(nn.Module):
    """Takes the place of an activation that is called several times: each call goes to a different replacement."""

    def forward(self, x: Tensor) -> Tensor:
        """Call ``torch.positive``, which the enclosing module redirects to the replacement whose turn it is."""
        return torch.positive(x)


def rewrite(
    model: nn.Module, trace: Trace, sites: Mapping[Site, Replacement | None], make: Callable[[Replacement], nn.Module]
) -> None:
    """Replace the activations of a model. ``sites`` has all of them, with None for those to leave."""
    plans: dict[str, Plan] = {}

    def insert(place: Place, name: str, module: nn.Module | None) -> None:
        model.get_submodule(place.owner).add_module(name, module)
        plans.setdefault(place.owner, {}).setdefault(place.call, {})[place.number] = name

    replaced, in_turn = _replace_modules(model, sites, make)
    for site, replacement in sites.items():
        owner, path, number = site.place
        if site.module is None and replacement:
            name = f"pair_gate_{number}" if site.factor_site else site.name.removeprefix(f"{owner}.")
            insert(site.place, name, make(replacement))
        elif (site.module, owner) in in_turn:
            number = len(plans.get(owner, {}).get("positive", ()))
            module = make(replacement) if replacement else site.module
            insert(Place(owner, "positive", number), f"{path.rpartition('.')[2]}_call_{number}", module)
    # Calls of the same functions by the modules inside must not be counted.
    isolated = {
        path
        for owner, plan in plans.items()
        for path in (*replaced, *(path for path, names in trace.functions.items() if names & plan.keys()))
        if path != owner and path.startswith(owner and f"{owner}.") and not isinstance(model.get_submodule(path), Turn)
    }
    for path in plans.keys() | isolated:
        target = model.get_submodule(path)
        target.forward = RedirectedForward(target, plans.get(path, {}))
    for layer in model.modules():  # turn off fast paths, which would not call the new activation
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False


def _replace_modules(
    model: nn.Module, sites: Mapping[Site, Replacement | None], make: Callable[[Replacement], nn.Module]
) -> tuple[set[str], set[tuple[nn.Module, str]]]:
    """Replace modules under all their names. Return these, and (module, owner) whose calls get different activations."""
    calls: dict[tuple[nn.Module, str], set[Replacement | None]] = {}
    for site, replacement in sites.items():
        if site.module is not None:
            calls.setdefault((site.module, site.place.owner), set()).add(replacement)
    replaced = set()
    for (old, owner), (new, *others) in calls.items():
        if new or others:
            module = Turn() if others or new is None else make(new)
            names = [name for name, each in model.named_modules(remove_duplicate=False) if each is old]
            for path in [name for name in names if name.startswith(owner and f"{owner}.")] or names:
                parent, _, name = path.rpartition(".")
                setattr(model.get_submodule(parent), name, module)
                replaced.add(path)
    return replaced, {key for key, turns in calls.items() if len(turns) > 1}
