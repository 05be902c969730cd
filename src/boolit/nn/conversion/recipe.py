"""The changes of a conversion as plain data, how they are made to a model, and how transformers models save them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from boolit.nn.conv1x1 import make_safe
from boolit.nn.conversion.layers import resize
from boolit.nn.conversion.sites import REDIRECTABLE, PairGate, Site
from boolit.nn.gates import Activation
from boolit.nn.specs import activation

Recipe = dict[str, Any]
Make = Callable[[str, int], Activation]
Plan = dict[str, dict[int, Any]]  # by name and number of a call: a submodule's name, or [position, old size, new size]


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

    def __init__(self, module: nn.Module) -> None:
        self.module, self.inner = module, module.__dict__.get("forward")
        self.plan: Plan = {}
        self.eager = False

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
        if self.eager and torch.compiler.is_compiling():
            return torch.compiler.disable(self._run, reason="torch.compile hides its in-place activations")(*args, **kwargs)
        return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
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


def replaced_modules(
    model: nn.Module, sites: Collection[Site], new: Mapping[Site, Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what replaces which modules, under all their names, and the modules that must count their calls."""
    calls: dict[tuple[nn.Module, str], list[Site]] = {}
    for site in sites:
        if site.module is not None:
            calls.setdefault((site.module, site.place.owner), []).append(site)
    result, counting = [], set()
    for (module, owner), called in calls.items():
        names = [name for name, each in model.named_modules(remove_duplicate=False) if each is module]
        inside = [name for name in names if name.startswith(f"{owner}." if owner else "")]
        turns = [new.get(site) for site in sorted(called, key=lambda site: site.place.number)]
        if all(turn == turns[0] for turn in turns):
            turns = turns[:1]
        else:
            counting.add(owner)
        result += [{"paths": inside or names, "turns": turns}] if any(turns) else []
    return result, counting


def apply(model: nn.Module, recipe: Mapping[str, Any], make: Make = activation) -> list[str]:
    """Make the changes of a recipe to the model and return the convolutions whose class was changed to a safe one."""
    for path, sizes in recipe["layers"].items():
        resize(model.get_submodule(path), sizes)
    for entry in recipe["modules"]:
        old = model.get_submodule(entry["paths"][0])
        turns = [old if turn is None else _new_module(model, turn, make) for turn in entry["turns"]]
        for path in entry["paths"]:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, turns[0] if len(turns) == 1 else InTurn(name, turns))
    for path in (*recipe["isolated"], *recipe["calls"]):
        module = model.get_submodule(path)
        module.forward = forward = RedirectedForward(module)
        for call in recipe["calls"].get(path, ()):
            if "name" in call:
                module.add_module(call["name"], _new_module(model, call, make))
                forward.eager = forward.eager or call["eager"]
            forward.plan.setdefault(call["call"], {})[call["number"]] = call.get("name") or call["sizes"]
    for layer in model.modules():  # turn off fast paths, which would not call the new activation
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False
    return [path for path, layer in model.named_modules() if make_safe(layer)]


def halves(spec: str) -> str:
    """Return the spec of the same gate that pairs the halves of its channels."""
    return spec if spec.endswith("_halves") else f"{spec}_halves"


def _new_module(model: nn.Module, entry: Mapping[str, Any], make: Make) -> nn.Module:
    gate = make(halves(entry["spec"]) if entry["pair"] else entry["spec"], entry["dim"])
    new = PairGate(gate) if entry["pair"] == "product" else gate
    like = next(model.parameters(), None)
    return (new if like is None else new.to(like.device, like.dtype)).train(model.training)


# Models of the transformers library


def remember(model: nn.Module, recipe: Recipe) -> None:
    """Store the recipe in the configuration of a transformers model."""
    config: Any = getattr(model, "config", None)
    if hasattr(model, "save_pretrained") and hasattr(config, "save_pretrained"):
        config.boolit = [*getattr(config, "boolit", ()), recipe]
        _keep_layers_apart(model)


def _keep_layers_apart(model: Any) -> None:
    """Let the model not save in an older format that merges layers and would split them in the middle on loading."""
    model.save_pretrained = partial(type(model).save_pretrained, model, save_original_format=False)


def from_pretrained(cls: type[Any], folder: str, **options: Any) -> Any:
    """Load a converted transformers model that ``save_pretrained`` wrote.

    Args:
        cls: the class of the model.
        folder: the folder that it was saved in.
        options: further arguments of ``cls.from_pretrained``.

    Example:
        >>> from_pretrained(nn.Linear, "somewhere")
        Traceback (most recent call last):
        TypeError: Linear has no from_pretrained; pass the class of a transformers model
    """
    if not hasattr(cls, "from_pretrained") or not hasattr(cls, "config_class"):
        raise TypeError(f"{cls.__name__} has no from_pretrained; pass the class of a transformers model")
    if not hasattr(cls.config_class.from_pretrained(folder), "boolit"):
        raise ValueError(f"{folder} holds no converted model; load it with {cls.__name__}.from_pretrained")

    @wraps(cls.__init__)
    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, config, *args, **kwargs)
        for recipe in config.boolit:
            apply(self, recipe)

    converting = type(cls.__name__, (cls,), {"__init__": init, "__module__": cls.__module__})
    model = converting.from_pretrained(folder, **options)  # type: ignore[attr-defined]
    model.__class__ = cls
    _keep_layers_apart(model)
    return model
