"""From solved widths to a recipe: which module goes where, and which calls of a forward are redirected."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from boolit.nn.conversion.constraints import WidthConstraints
from boolit.nn.conversion.recipe import Recipe
from boolit.nn.conversion.sites import POINTWISE_CLASSES, Site, places
from boolit.nn.conversion.widths import Scale


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
