"""What a conversion changes, as plain data; doing it to a model; and models of transformers that do it when they are loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from torch import fx, nn

from boolit.nn.conv1x1 import make_safe
from boolit.nn.conversion.constraints import WidthConstraints
from boolit.nn.conversion.layers import resize
from boolit.nn.conversion.redirect import InTurn, PairGate, redirect, subclass
from boolit.nn.conversion.sites import POINTWISE_CLASSES, TRANSFORMER_LAYERS, Site, places
from boolit.nn.conversion.widths import Scale
from boolit.nn.gates import Activation
from boolit.nn.specs import activation

Recipe = dict[str, Any]
Make = Callable[[str, int], Activation]

_FIELDS = re.compile(r"intermediate|ffn|d_ff|inner|mlp_dim|hidden_dim")


def apply(model: nn.Module, recipe: Mapping[str, Any], make: Make = activation) -> list[str]:
    """Resizes the layers, puts the activations in, and redirects calls; returns the convolutions it gave another class."""
    for path, sizes in recipe["layers"].items():
        resize(model.get_submodule(path), sizes)
    for entry in recipe["modules"]:
        old = model.get_submodule(entry["paths"][0])
        turns = [old if turn is None else _gate(model, turn, make) for turn in entry["turns"]]
        for path in entry["paths"]:
            put(model, path, turns[0] if len(turns) == 1 else InTurn(turns))
    for path, turn in recipe["transformers"].items():
        _put_in_transformer(model, path, _gate(model, turn, make))
    for path, calls in recipe["calls"].items():
        owner = model.get_submodule(path)
        for call in calls:
            if "name" in call:
                gate = _gate(model, call, make)
                owner.add_module(call["name"], PairGate(gate) if call["pair"] else gate)
            redirect(owner, {call["call"]: {call["index"]: call.get("name") or call["sizes"]}})
    for path in recipe["apart"]:
        redirect(model.get_submodule(path), {})
    return [path for path, layer in model.named_modules() if make_safe(layer)]


def put(model: nn.Module, path: str, module: nn.Module) -> None:
    """Sets a module at a path."""
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _gate(model: nn.Module, entry: Mapping[str, Any], make: Make) -> Activation:
    new, like = make(entry["spec"], entry["dim"]), next(model.parameters(), None)
    return (new if like is None else new.to(like.device, like.dtype)).train(model.training)


def _put_in_transformer(model: nn.Module, path: str, gate: nn.Module) -> None:
    """Sets the activation of torch's own layer, and turns off the fast paths that would not call it."""
    layer = model.get_submodule(path)
    assert isinstance(layer, TRANSFORMER_LAYERS)
    layer.activation = gate
    if isinstance(layer, nn.TransformerEncoderLayer):
        layer.activation_relu_or_gelu = 0
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and layer in encoder.layers:
            encoder.use_nested_tensor = False


def pretrained(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a model's class, under its name, that follows the recipe in its configuration when it is made."""

    @wraps(kind.__init__)
    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, config, *args, **kwargs)
        for recipe in config.boolit:
            apply(self, recipe)

    @wraps(kind.save_pretrained)  # type: ignore[attr-defined]
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The format of older checkpoints joins layers that were equally wide, and would cut them apart in the middle.
        return kind.save_pretrained(self, *args, **{"save_original_format": False, **kwargs})  # type: ignore[attr-defined]

    return subclass(kind, pretrained, {"__init__": init, "save_pretrained": save_pretrained})


def remember(model: nn.Module, recipe: Recipe, constraints: WidthConstraints, scale: Scale) -> None:
    """Writes the recipe into the configuration of a model that is saved with one, and new widths where it has a field."""
    config: Any = getattr(model, "config", None)
    if not hasattr(model, "save_pretrained") or not hasattr(config, "save_pretrained"):
        return
    widths = {key: (use.size, scale.size(use)) for key, use in constraints.layer_widths.items()}
    free = {path for path, _ in widths}
    fixed = [layer for path, layer in model.named_modules() if path not in free]
    others = {size for layer in fixed for parameter in layer.parameters(recurse=False) for size in parameter.shape}
    changed = set()
    for part in (config, *(value for value in vars(config).values() if hasattr(value, "save_pretrained"))):
        for name, value in vars(part).items():
            made = {new for (_, attribute), (old, new) in widths.items() if attribute.startswith("out_") and old == value}
            if _FIELDS.search(name) and isinstance(value, int) and len(made) == 1 and value not in others:
                setattr(part, name, made.pop())
                changed.add(value)
    layers = {path: dict(sizes) for path, sizes in recipe["layers"].items()}
    for (path, attribute), (old, new) in widths.items():
        if old in changed:  # the layer would be made with the new value of the field
            layers.setdefault(path, {})[attribute] = new
    config.boolit = [*getattr(config, "boolit", ()), {**recipe, "layers": layers}]
    if pretrained not in getattr(type(model), "made_from", (None, ()))[1]:
        model.__class__ = pretrained(type(model))


def from_pretrained(cls: type[Any], folder: str, **options: Any) -> Any:
    """A converted model of ``transformers``, as ``save_pretrained`` wrote it.

    Args:
        cls: the model's class, as it was before the conversion.
        folder: where it was saved.
        options: what ``cls.from_pretrained`` takes besides.

    Example:
        >>> from_pretrained(nn.Linear, "somewhere")
        Traceback (most recent call last):
        TypeError: Linear has no from_pretrained: give the class of a model of transformers
    """
    if not hasattr(cls, "from_pretrained") or not hasattr(cls, "config_class"):
        raise TypeError(f"{cls.__name__} has no from_pretrained: give the class of a model of transformers")
    config = cls.config_class.from_pretrained(folder)
    if not hasattr(config, "boolit"):
        raise ValueError(f"{folder} holds no converted model; load it with {cls.__name__}.from_pretrained")
    return pretrained(cls).from_pretrained(folder, **options)  # type: ignore[attr-defined]


@dataclass
class Replacements:
    """What goes where in a model, before the widths are known."""

    model: nn.Module
    graph: fx.Graph | None
    sites: Collection[Site]
    active: Collection[Site]
    products: Mapping[fx.Node, Site]
    constraints: WidthConstraints

    def recipe(self, spec: str, sizes: Mapping[str, Any], scale: Scale) -> Recipe:
        """All that is done, as plain data: a configuration can keep it."""
        gated = set(self.products.values())
        dims = self.constraints.dims
        entries = {site: {"spec": "identity" if site in gated else spec, "dim": dims[site]} for site in self.active}
        where = places(self.graph) if self.graph is not None else {}
        calls: dict[str, list[dict[str, Any]]] = {}
        for place, what in dict(self._calls(spec, entries, where, scale)).items():
            calls.setdefault(place.owner, []).append({"call": place.call, "index": place.number, **what})
        modules, turning = self._modules(entries)
        layers = {site.name.rpartition(".")[0]: entry for site, entry in entries.items() if not site.nodes and not site.module}
        apart = sorted({*turning, *self._apart(where, calls, modules)} - calls.keys())
        return {"layers": dict(sizes), "modules": modules, "transformers": layers, "calls": calls, "apart": apart}

    def _calls(self, spec: str, entries: Mapping[Site, Any], where: Any, scale: Scale) -> Iterator[tuple[Any, Any]]:
        """Calls of functions that become gates, products that become gates of two, and sizes that are written out."""
        for site, entry in entries.items():
            if site.nodes and site.module is None:
                yield site.place, {"name": site.name.removeprefix(f"{site.place.owner}."), "pair": False, **entry}
        for node, site in self.products.items():
            entry = {"spec": spec, "dim": self.constraints.dims[site]}
            yield where[node], {"name": f"pair_gate_{where[node].number}", "pair": True, **entry}
        for literal in self.constraints.literals:
            old, new = literal.use.size, scale.size(literal.use)
            if old != new:
                yield where[literal.node], {"sizes": [literal.position, old, new]}

    def _modules(self, entries: Mapping[Site, Any]) -> tuple[list[dict[str, Any]], set[str]]:
        """Which modules are replaced by what, under every name they have; and which callers must count the calls."""
        paths: dict[int, list[str]] = {}
        for path, module in self.model.named_modules(remove_duplicate=False):
            paths.setdefault(id(module), []).append(path)
        calls: dict[str, dict[str, list[Site]]] = {}
        for site in self.sites:
            if site.module is not None:
                calls.setdefault(site.module, {}).setdefault(site.place.owner, []).append(site)
        found, turning = [], set()
        for module, owners in calls.items():
            names = paths[id(self.model.get_submodule(module))]
            everywhere = [entries.get(site) for called in owners.values() for site in called]
            alike = all(entry == everywhere[0] for entry in everywhere)
            for owner, called in [*owners.items()][: 1 if alike else None]:
                own = [name for name in names if name.startswith(f"{owner}." if owner and not alike else "")] or names
                turns = [entries.get(site) for site in sorted(called, key=lambda site: site.place.number)]
                if any(turn != turns[0] for turn in turns):
                    turning.add(owner)
                else:
                    turns = turns[:1]
                found += [{"paths": own, "turns": turns}] if any(turns) else []
        return found, turning

    def _apart(self, where: Mapping[fx.Node, Any], calls: Mapping[str, Any], modules: list[dict[str, Any]]) -> set[str]:
        """Modules inside one whose calls are redirected, that make calls of the same names: these are not its own."""
        names = {owner: {call["call"] for call in some} for owner, some in calls.items()}
        found = {path for entry in modules for path in entry["paths"] if any(_within(path, owner) for owner in names)}
        for node, place in where.items():
            path, inside = place.owner, {place.call}
            if node.op == "call_module":
                path = place.call
                pointwise = isinstance(self.model.get_submodule(path), POINTWISE_CLASSES)
                inside = node.meta.get("inside", set[str]().union(*names.values()) if pointwise else set())
            if any(_within(path, owner) and inside & called for owner, called in names.items()):
                found.add(path)
        return found


def _within(path: str, owner: str) -> bool:
    return path != owner and path.startswith(f"{owner}." if owner else "")
