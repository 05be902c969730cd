"""Put new activations in place of modules and of calls of functions, without changing the class of any module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from boolit.nn.conversion.sites import REDIRECTABLE, PairGate, Site
from boolit.nn.conversion.tracing import Place, Trace

Plan = dict[str, dict[int, Any]]  # by name and number of a call: a submodule's name, or (position, old size, new size)


class _Redirection(TorchFunctionMode):
    """Counts the calls of functions in one forward and redirects those in the plan.

    It is paused while a nested module with its own redirection runs. torch.compile traces it with ``fullgraph=True``.
    """

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        super().__init__()
        self.module, self.plan, self.paused = module, plan, 0
        self._counts: dict[str, int] = {}

    def count(self, name: str) -> int:
        """Return how often this was called for the name before."""
        self._counts[name] = self._counts.get(name, -1) + 1
        return self._counts[name]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = REDIRECTABLE.get(func, "")
        if func is Tensor.unflatten:
            func = torch.unflatten  # torch.compile cannot trace the method inside a mode
        if self.paused or name not in self.plan:
            return func(*args, **kwargs)
        target = self.plan[name].get(self.count(name))
        if isinstance(target, str):
            module = self.module.get_submodule(target)
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            return module(*given[: 2 if isinstance(module, PairGate) else 1])
        if target:
            position, old, new = target
            sizes = list(args[1] if isinstance(args[1], (list, tuple)) else args[1:])
            sizes[position] = new if sizes[position] == old else sizes[position]
            args = (args[0], sizes)
        return func(*args, **kwargs)


def _redirections() -> list[_Redirection]:
    return [mode for mode in _get_current_function_mode_stack() if isinstance(mode, _Redirection)]


class RedirectedForward:
    """The forward of a module whose calls of functions are redirected; set as its instance attribute ``forward``.

    The class of the module, its forward and its parameters stay what they are. Copies and pickles refer to the copy. A second
    conversion wraps the first one, whose redirected calls it does not see.
    """

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        self.module, self.plan, self.inner = module, plan, module.__dict__.get("forward")

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
        outer = [mode for mode in _redirections() if mode.module is not self.module]
        for mode in outer:
            mode.paused += 1
        try:
            with _Redirection(self.module, self.plan):
                return self._forward(*args, **kwargs)
        finally:
            for mode in outer:
                mode.paused -= 1


class InTurn(nn.Module):
    """Replaces an activation module that is called several times in a forward, with different results."""

    def __init__(self, name: str, modules: list[nn.Module]) -> None:
        super().__init__()
        self.name, self.calls = name, nn.ModuleList(modules)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the module whose turn it is.

        Shape: of that module.
        """
        owner = [mode for mode in _redirections() if mode.module is not self][-1]
        result: Tensor = self.calls[owner.count(self.name) % len(self.calls)](x)
        return result


class Replacement(NamedTuple):
    """The activation of a site after the conversion: its spec, its dimension, and which `Site.pair` it reads."""

    spec: str
    dim: int
    pair: str


def rewrite(
    model: nn.Module,
    trace: Trace,
    sites: Mapping[Site, Replacement | None],
    sizes: Mapping[Place, tuple[int, int, int]],
    make: Callable[[Replacement], nn.Module],
) -> None:
    """Change the activations of a model and the calls in its forwards.

    Args:
        model: the model, which is changed.
        trace: its calls.
        sites: all activations with their replacements, None to leave one.
        sizes: the position, old value and new value of a size in the arguments of a view or reshape.
        make: makes the module of a replacement.
    """
    plans: dict[str, Plan] = {}

    def redirect(place: Place, target: Any) -> None:
        plans.setdefault(place.owner, {}).setdefault(place.call, {})[place.number] = target

    def insert(place: Place, name: str, replacement: Replacement) -> None:
        model.get_submodule(place.owner).add_module(name, make(replacement))
        redirect(place, name)

    replaced, counting = _replace_modules(model, sites, make)
    for site, replacement in sites.items():
        if site.module is None and replacement:
            name = site.name.removeprefix(f"{site.place.owner}.")
            insert(site.place, f"pair_gate_{site.place.number}" if site.factor_site else name, replacement)
    for place, size in sizes.items():
        redirect(place, size)
    # Calls of the same functions by the modules inside must not be counted.
    isolated = {
        path
        for owner, plan in plans.items()
        for path in (*replaced, *(path for path, names in trace.functions.items() if names & plan.keys()))
        if path != owner and _is_inside(path, owner)
    }
    for path in plans.keys() | isolated | counting:
        module = model.get_submodule(path)
        module.forward = RedirectedForward(module, plans.get(path, {}))
    for layer in model.modules():  # turn off fast paths, which would not call the new activation
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False


def _replace_modules(
    model: nn.Module, sites: Mapping[Site, Replacement | None], make: Callable[[Replacement], nn.Module]
) -> tuple[set[str], set[str]]:
    """Replace modules under all their names. Return these, and the modules that must count their calls."""
    calls: dict[tuple[nn.Module, str], list[Replacement | None]] = {}
    for site, replacement in sites.items():
        if site.module is not None:
            calls.setdefault((site.module, site.place.owner), []).append(replacement)
    replaced, counting = set(), set()
    for (old, owner), turns in calls.items():
        if not any(turns):
            continue
        alike = len(set(turns)) == 1
        modules = [old if turn is None else make(turn) for turn in (turns[:1] if alike else turns)]
        names = [name for name, each in model.named_modules(remove_duplicate=False) if each is old]
        for path in [name for name in names if _is_inside(name, owner)] or names:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, modules[0] if alike else InTurn(name, modules))
            replaced.add(path)
        counting |= set() if alike else {owner}
    return replaced, counting


def _is_inside(path: str, owner: str) -> bool:
    return path.startswith(f"{owner}." if owner else "")
