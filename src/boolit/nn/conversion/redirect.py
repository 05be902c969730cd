"""Calls of functions replaced where they are made: a module whose forward is the user's own, but for the calls in its plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from boolit.nn.conversion.sites import function_name
from boolit.nn.gates import Activation

Make = Callable[[type[nn.Module]], type[nn.Module]]
Plan = dict[str, dict[int, Any]]  # by name and number of the call: the name of a submodule, or sizes [position, old, new]


class _Redirection(TorchFunctionMode):
    """Counts the calls of one forward, and sends those in the plan elsewhere; those of a module inside it are not its own."""

    running = threading.local()

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        super().__init__()
        self._module, self._plan = module, plan
        self._counts: dict[str, int] = {}

    def __enter__(self) -> _Redirection:
        self.running.modes = [*getattr(self.running, "modes", ()), self]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.running.modes.remove(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if self.running.modes[-1] is not self or name not in self._plan:
            return func(*args, **kwargs)
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        target = self._plan[name].get(number)
        if isinstance(target, str):
            module = self._module.get_submodule(target)
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            return module(*given[: 2 if isinstance(module, PairGate) else 1])
        return func(*(resized(args, *target) if target else args), **kwargs)


def resized(args: tuple[Any, ...], position: int, old: int, new: int) -> tuple[Any, ...]:
    """The arguments of a reshape with the size ``old``, written out in the code, replaced."""
    first, *rest = args
    sizes = list(rest[0] if isinstance(rest[0], (list, tuple)) else rest)
    if sizes[position] == old:
        sizes[position] = new
    return first, sizes


def redirecting(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a module's class, under its name, whose forward follows the plan in ``redirected_calls``."""

    @torch.compiler.disable(reason="boolit redirects calls of functions in it")  # type: ignore[untyped-decorator]
    @wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for module in self.children():
            if isinstance(module, InTurn):
                module.turn = 0
        with _Redirection(self, self.redirected_calls):  # type: ignore[arg-type]
            return kind.forward(self, *args, **kwargs)

    return subclass(kind, redirecting, {"forward": forward})


def subclass(kind: type[nn.Module], make: Make, body: dict[str, Any]) -> type[nn.Module]:
    """A class under the name of another, made by ``make`` from it, whose models can be copied and pickled."""
    base, makers = getattr(kind, "made_from", (kind, ()))
    made = {"made_from": (base, (*makers, make)), "__reduce_ex__": lambda self, _: (_rebuild, type(self).made_from, vars(self))}
    body = {"__module__": kind.__module__, "__doc__": kind.__doc__, **made, **body}
    return _CLASSES.setdefault((kind, make), type(kind.__name__, (kind,), body))


_CLASSES: dict[tuple[type[nn.Module], Make], type[nn.Module]] = {}


def redirect(module: Any, plan: Plan) -> None:
    """Gives a module a plan."""
    if not hasattr(module, "redirected_calls"):
        module.__class__ = redirecting(type(module))
        module.redirected_calls = {}
    for name, calls in plan.items():
        module.redirected_calls.setdefault(name, {}).update(calls)


def _rebuild(kind: type[nn.Module], makers: Iterable[Make]) -> nn.Module:
    for make in makers:
        kind = make(kind)
    return kind.__new__(kind)


class InTurn(nn.Module):
    """Stands for one activation module that is called several times and is not the same each time."""

    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        self.calls, self.turn = nn.ModuleList(modules), 0

    def forward(self, x: Tensor) -> Tensor:
        module = self.calls[self.turn % len(self.calls)]
        self.turn += 1
        result: Tensor = module(x)
        return result


class PairGate(nn.Module):
    """A gate over the channels of two tensors, each with its partner in the other: in place of ``act(gate) * up``."""

    def __init__(self, gate: Activation) -> None:
        super().__init__()
        self.gate = gate

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        dim = self.gate.dim
        if getattr(self.gate, "pairing", "adjacent") == "halves":
            return self.gate.forward(torch.cat((one, other), dim))
        return self.gate.forward(torch.stack((one, other), dim).flatten(dim - 1, dim))
