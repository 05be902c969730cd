"""From solved widths to a recipe: which module goes where, and which calls of a forward are redirected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import fx, nn

from boolit.nn.conversion.constraints import WidthConstraints
from boolit.nn.conversion.recipe import Recipe
from boolit.nn.conversion.sites import POINTWISE_CLASSES, Site, places
from boolit.nn.conversion.widths import Scale


def plan(
    model: nn.Module,
    graph: fx.Graph | None,
    sites: Collection[Site],
    active: Collection[Site],
    products: Mapping[fx.Node, Site],
    constraints: WidthConstraints,
    scale: Scale,
    spec: str,
) -> Recipe:
    """The recipe, all plain data: a configuration can keep it."""
    gated = set(products.values())
    layers: dict[str, dict[str, int]] = {}
    for (path, attribute), use in constraints.layer_widths.items():
        if scale.size(use) != use.size:
            layers.setdefault(path, {})[attribute] = scale.size(use)
    entries = {site: {"spec": "identity" if site in gated else spec, "dim": constraints.dims[site]} for site in active}
    calls: dict[str, list[dict[str, Any]]] = {}
    for site in active:
        if site.nodes and site.module is None:
            relative = site.name.removeprefix(f"{site.place.owner}.")
            call = {"call": site.place.call, "index": site.place.number, "name": relative, "pair": False}
            calls.setdefault(site.place.owner, []).append({**call, **entries[site]})
    where = places(graph) if graph is not None else {}
    taken = {name for name, _ in model.named_modules(remove_duplicate=False)} | {site.name for site in sites}
    named: dict[Any, dict[str, Any]] = {}
    for node, site in products.items():
        place = where[node]
        name = "pair_gate" if not place.number else f"pair_gate_{place.number}"
        assert name not in taken
        call = {"call": place.call, "index": place.number, "name": name, "pair": True}
        named[place] = {**call, "spec": spec, "dim": constraints.dims[site]}
    for literal in constraints.literals:
        old, new = literal.use.size, scale.size(literal.use)
        if old != new:
            place = where[literal.node]
            named[place] = {"call": place.call, "index": place.number, "sizes": [literal.position, old, new]}
    for place, call in named.items():
        calls.setdefault(place.owner, []).append(call)
    modules, turning = _modules(model, sites, entries)
    transformers = {
        site.name.rpartition(".")[0]: entry for site, entry in entries.items() if not site.nodes and site.module is None
    }
    apart = sorted({*turning, *_apart(model, graph, calls, modules)} - calls.keys())
    return {"layers": layers, "modules": modules, "transformers": transformers, "calls": calls, "apart": apart}


def _modules(model: nn.Module, sites: Collection[Site], entries: Mapping[Site, Any]) -> tuple[list[dict[str, Any]], set[str]]:
    """Which activation modules are replaced by what, under every name they have; and which callers must count the calls."""
    paths: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        paths.setdefault(id(module), []).append(path)
    calls: dict[str, dict[str, list[Site]]] = {}
    for site in sites:
        if site.module is not None:
            calls.setdefault(site.module, {}).setdefault(site.place.owner, []).append(site)
    found, turning = [], set()
    for module, owners in calls.items():
        names = paths[id(model.get_submodule(module))]
        everywhere = [entries.get(site) for called in owners.values() for site in called]
        if all(entry == everywhere[0] for entry in everywhere):
            owners, own = {"": [next(iter(owners.values()))[0]]}, {"": names}
        else:
            own = {
                owner: [name for name in names if name.startswith(f"{owner}." if owner else "")] or names for owner in owners
            }
        for owner, called in owners.items():
            turns = [entries.get(site) for site in sorted(called, key=lambda site: site.place.number)]
            turns = turns[:1] if all(turn == turns[0] for turn in turns) else turns
            if any(turns):
                found.append({"paths": own[owner], "turns": turns})
            if len(turns) > 1:
                turning.add(owner)
    return found, turning


def _apart(
    model: nn.Module, graph: fx.Graph | None, calls: Mapping[str, list[dict[str, Any]]], modules: list[dict[str, Any]]
) -> set[str]:
    """Modules inside one whose calls are redirected, that make calls of the same names: these are not its own."""
    names = {owner: {call["call"] for call in some} for owner, some in calls.items()}
    found = {path for entry in modules for path in entry["paths"] if any(_within(path, owner) for owner in names)}
    for node, place in places(graph).items() if graph is not None and names else ():
        leaf = node.op == "call_module"
        module = model.get_submodule(place.call) if leaf else None
        inside = (
            node.meta.get("inside", set(names) if isinstance(module, POINTWISE_CLASSES) else set()) if leaf else {place.call}
        )
        if leaf and "inside" not in node.meta and isinstance(module, POINTWISE_CLASSES):
            inside = set().union(*names.values())
        path = place.call if leaf else place.owner
        if any(_within(path, owner) and inside & called for owner, called in names.items()):
            found.add(path)
    return found


def _within(path: str, owner: str) -> bool:
    return path != owner and path.startswith(f"{owner}." if owner else "")
