"""The changes of a conversion as plain data, how they are made to a model, and how transformers models save them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from boolit.nn.conv1x1 import make_safe
from boolit.nn.conversion.channels import ChannelAnalysis
from boolit.nn.conversion.layers import resize
from boolit.nn.conversion.sites import POINTWISE_CLASSES, REPLACEABLE, PairGate, Place, Site, places
from boolit.nn.conversion.widths import Scale
from boolit.nn.gates import Activation
from boolit.nn.specs import activation

Recipe = dict[str, Any]
Make = Callable[[str, int], Activation]
Plan = dict[str, dict[int, Any]]  # by name and index of a call: a submodule's name, or [position, old size, new size]


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
        name = REPLACEABLE.get(func, "")
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

    The class of the module, its forward and its parameters stay what they are. Copies and pickles refer to the copy.
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
    def __code__(self) -> Any:  # read by torch.export
        return type(self.module).forward.__code__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.eager and torch.compiler.is_compiling():
            return torch.compiler.disable(self._run, reason="torch.compile hides its in-place activations")(*args, **kwargs)
        return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        outer = _redirections()
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
        result: Tensor = self.calls[_redirections()[-1].count(self.name) % len(self.calls)](x)
        return result


def make_recipe(
    analysis: ChannelAnalysis,
    graph: fx.Graph | None,
    sites: Collection[Site],
    products: Mapping[fx.Node, Site],
    spec: str,
    sizes: Mapping[str, Any],
    scale: Scale,
) -> Recipe:
    """Return all changes to a model as plain data that can be stored in a configuration."""
    pairs = {**dict.fromkeys(sites, ""), **{site: site.pair for site in sites}}
    replaced = set(products.values())
    entries = {
        site: {"spec": "identity" if site in replaced else spec, "dim": dim, "pair": pairs.get(site, "")}
        for site, dim in analysis.dims.items()
    }
    where = places(graph) if graph is not None else {}
    calls: dict[str, list[dict[str, Any]]] = {}

    def redirect(place: Place, **target: Any) -> None:
        entry = {"call": place.call, "index": place.number, **target}
        if entry not in calls.setdefault(place.owner, []):
            calls[place.owner].append(entry)

    for site, entry in entries.items():
        if site.nodes and site.module is None:
            eager = any(node.meta["hidden"] for node in site.nodes)
            redirect(site.place, name=site.name.removeprefix(f"{site.place.owner}."), eager=eager, **entry)
    for node, site in products.items():
        name = f"pair_gate_{where[node].number}"
        redirect(where[node], name=name, eager=False, spec=spec, dim=analysis.dims[site], pair="product")
    for literal in analysis.literals:
        old, new = literal.use.size, scale.size(literal.use)
        if old != new:
            redirect(where[literal.node], sizes=[literal.position, old, new])
    modules, turning = _module_entries(analysis.model, sites, entries)
    isolated = sorted({*turning, *_isolated(analysis.model, where, calls, modules)} - calls.keys())
    return {"layers": dict(sizes), "modules": modules, "calls": calls, "isolated": isolated}


def _module_entries(
    model: nn.Module, sites: Iterable[Site], entries: Mapping[Site, Any]
) -> tuple[list[dict[str, Any]], set[str]]:
    """Return what replaces which modules, under all their names, and the modules that must count their calls."""
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    calls: dict[str, dict[str, list[Site]]] = {}
    for site in sites:
        if site.module is not None:
            calls.setdefault(site.module, {}).setdefault(site.place.owner, []).append(site)
    result, turning = [], set()
    for module, owners in calls.items():
        names = paths[id(model.get_submodule(module))]
        everywhere = [entries.get(site) for called in owners.values() for site in called]
        alike = all(entry == everywhere[0] for entry in everywhere)
        for owner, called in [*owners.items()][: 1 if alike else None]:
            inside = [name for name in names if name.startswith(f"{owner}." if owner and not alike else "")] or names
            turns = [entries.get(site) for site in sorted(called, key=lambda site: site.place.number)]
            if any(turn != turns[0] for turn in turns):
                turning.add(owner)
            else:
                turns = turns[:1]
            result += [{"paths": inside, "turns": turns}] if any(turns) else []
    return result, turning


def _isolated(
    model: nn.Module, where: Mapping[fx.Node, Place], calls: Mapping[str, Any], modules: Iterable[Mapping[str, Any]]
) -> set[str]:
    """Return modules inside one with redirected calls that call the same functions, which must not be counted."""
    names = {owner: {call["call"] for call in redirected} for owner, redirected in calls.items()}
    result = {path for entry in modules for path in entry["paths"] if any(_is_within(path, owner) for owner in names)}
    for node, place in where.items():
        path, inside = place.owner, {place.call}
        if node.op == "call_module":
            path = place.call
            pointwise = isinstance(model.get_submodule(path), POINTWISE_CLASSES)
            inside = node.meta.get("inside", set[str]().union(*names.values()) if pointwise else set())
        if any(_is_within(path, owner) and inside & called for owner, called in names.items()):
            result.add(path)
    return result


def _is_within(path: str, owner: str) -> bool:
    return path != owner and path.startswith(f"{owner}." if owner else "")


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
    for path, calls in recipe["calls"].items():
        forward = _redirect(model.get_submodule(path))
        # Calls that an earlier conversion redirected to modules are not in the trace of this one.
        redirected = {name: {i for i, target in plan.items() if isinstance(target, str)} for name, plan in forward.plan.items()}
        for call in calls:
            plan, indices = forward.plan.setdefault(call["call"], {}), itertools.count()
            if call["call"] in redirected:
                indices = itertools.filterfalse(redirected[call["call"]].__contains__, indices)  # type: ignore[assignment]
            index = next(itertools.islice(indices, call["index"], None))
            if "name" in call:
                model.get_submodule(path).add_module(call["name"], _new_module(model, call, make))
                plan[index], forward.eager = call["name"], forward.eager or call["eager"]
            else:
                position, old, new = call["sizes"]
                plan[index] = [position, plan[index][1] if index in plan else old, new]
    for path in recipe["isolated"]:
        _redirect(model.get_submodule(path))
    for layer in model.modules():  # turn off fast paths, which would not call the new activation
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False
    return [path for path, layer in model.named_modules() if make_safe(layer)]


def _redirect(module: nn.Module) -> RedirectedForward:
    forward = module.__dict__.get("forward")
    if not isinstance(forward, RedirectedForward):
        module.forward = forward = RedirectedForward(module)
    return forward


def paired(spec: str, dim: int, make: Make) -> tuple[Activation, bool]:
    """Return the activation that pairs halves of the channels, or the one of neighbors and True if there is none."""
    if spec.endswith("_halves"):
        return make(spec, dim), False
    try:
        return make(f"{spec}_halves", dim), False
    except ValueError:
        return make(spec, dim), True


def _new_module(model: nn.Module, entry: Mapping[str, Any], make: Make) -> nn.Module:
    new: nn.Module
    if entry["pair"]:
        gate, adjacent = paired(entry["spec"], entry["dim"], make)
        new = gate if entry["pair"] == "glu" and not adjacent else PairGate(gate, adjacent)
    else:
        new = make(entry["spec"], entry["dim"])
    like = next(model.parameters(), None)
    return (new if like is None else new.to(like.device, like.dtype)).train(model.training)


# Models of the transformers library


def _pretrained(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass of a model's class, with its name, that applies the recipes in its configuration."""
    if hasattr(kind, "boolit_base"):
        return kind

    @wraps(kind.__init__)
    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, config, *args, **kwargs)
        for recipe in config.boolit:
            apply(self, recipe)

    @wraps(kind.save_pretrained)  # type: ignore[attr-defined]
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The format of older checkpoints merges layers that were equally wide and would split them in the middle.
        return kind.save_pretrained(self, *args, **{"save_original_format": False, **kwargs})  # type: ignore[attr-defined]

    def reduce(self: Any, _: object) -> Any:
        return _rebuild, (kind,), vars(self)

    body = {"boolit_base": kind, "__init__": init, "save_pretrained": save_pretrained, "__reduce_ex__": reduce}
    body |= {"__module__": kind.__module__, "__doc__": kind.__doc__}
    return _CLASSES.setdefault(kind, type(kind.__name__, (kind,), body))


_CLASSES: dict[type[nn.Module], type[nn.Module]] = {}


def _rebuild(kind: type[nn.Module]) -> nn.Module:
    subclass = _pretrained(kind)
    return subclass.__new__(subclass)


def remember(model: nn.Module, recipe: Recipe) -> None:
    """Store the recipe in the configuration of a transformers model."""
    config: Any = getattr(model, "config", None)
    if hasattr(model, "save_pretrained") and hasattr(config, "save_pretrained"):
        config.boolit = [*getattr(config, "boolit", ()), recipe]
        model.__class__ = _pretrained(type(model))


def from_pretrained(cls: type[Any], folder: str, **options: Any) -> Any:
    """Load a converted transformers model that ``save_pretrained`` wrote.

    Args:
        cls: the class of the model before the conversion.
        folder: where it was saved.
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
    return _pretrained(cls).from_pretrained(folder, **options)  # type: ignore[attr-defined]
