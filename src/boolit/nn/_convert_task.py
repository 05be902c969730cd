"""One conversion, step by step: find, select, solve, scale, apply."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from boolit.nn._activation import Activation
from boolit.nn._convert_choice import Choice
from boolit.nn._convert_flow import Flow
from boolit.nn._convert_layers import CONVOLUTIONS, describe, parameter_count, resize
from boolit.nn._convert_net import Net
from boolit.nn._convert_rewrite import free_training, needs_graph, rewrite, rewrite_literals, swap_modules
from boolit.nn._convert_solve import Component, Scale, Widths, components, fit, rounded
from boolit.nn._convert_trace import Site, UntraceableError, child, find_sites, is_layer_of_torch, trace, untraced_sites
from boolit.nn.conv1x1 import make_safe
from boolit.nn.specs import activation
from boolit.nn.width import count_parameters

Budget = Literal["width", "params"]
Spec = str | type[nn.Module] | Callable[[Tensor], Tensor]


class Change(NamedTuple):
    """One thing that was changed."""

    layer: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.was} → {self.now}"


class Task:
    """The conversion of ``model``, which it changes."""

    def __init__(self, model: nn.Module, spec: Spec, choice: Choice) -> None:
        _check_lazy(model)
        self.model, self.spec, self.choice = model, spec, choice
        self.probe = activation(spec)
        self.untraced = ""
        self.graph = self._trace()
        self.sites = untraced_sites(model, choice) if self.untraced else find_sites(model, self.graph, choice)
        if not self.sites:
            raise ValueError(
                f"{type(model).__name__} calls none of {', '.join(sorted(choice.names)) or choice.classes}; "
                "say which activations to replace with replace=[…]"
            )
        self.active = list(self.sites)
        self.net = Net(model)
        self.components: list[Component] = []

    def select(self, only: Sequence[str], keep: Sequence[str]) -> dict[str, str]:
        """Takes the activations whose names match ``only`` and not ``keep``; returns the others."""
        for pattern in (*only, *keep):
            if not any(fnmatchcase(site.name, pattern) for site in self.sites):
                raise ValueError(f"no activation is called {pattern!r}; there are {', '.join(s.name for s in self.sites)}")
        self.active = [site for site in self.sites if _matches(site, only) and not _matches(site, keep)]
        unseen = {type(self.model).__name__: self.untraced} if self.untraced else {}
        return {site.name: "as asked" for site in self.sites if site not in self.active} | unseen

    def solve(self, skip_pinned: bool) -> dict[str, str]:
        """Finds which widths hang together; refuses what cannot be, or leaves and returns it."""
        left: dict[str, str] = {}
        while True:
            flow = Flow(self.model, self.active, self.probe)
            if self.graph is not None:
                flow.walk(self.graph)
            self.net, self.components = flow.net, components(flow.net)
            refused = self.net.refusals
            if not refused:
                return left
            self.active = [site for site in self.active if site not in refused]
            if not skip_pinned or not self.active:
                raise ValueError(self._refusal(refused, skip_pinned))
            left |= {site.name: reason for site, reason in refused.items()}

    def scale(self, budget: Budget, parameters: int) -> Scale:
        """By how much each axis grows or shrinks."""
        found = self.components
        if budget == "width":
            return Scale(self.net, found, rounded(found))
        count = self._counter()
        widths = fit(found, parameters, count)
        fixed = dict.fromkeys(link.site.name for one in found if one.fixed for link in one.links)
        stuck = all(one.fixed for one in found) and count(widths) != parameters
        if fixed and (stuck or count(rounded(found, Fraction(0))) > parameters):
            raise ValueError(
                f"cannot keep {parameters:,} parameters: with the width fixed at {', '.join(fixed)}, the nearest is "
                f'{count(widths):,}; use budget="width", or leave these with keep=[…]'
            )
        return Scale(self.net, found, widths)

    def apply(self, scale: Scale) -> tuple[nn.Module, list[Change]]:
        """Resizes the layers and puts the activations in."""
        new = {site: self._make(site) for site in self.active}
        changes = [Change(site.name, site.was, module.spec) for site, module in new.items()]
        whole = self.graph is not None and needs_graph(self.sites, new, self.net, scale)
        for path, sizes in self._resized(scale).items():
            layer = self.model.get_submodule(path)
            changes.append(Change(path, describe(layer), f"{describe(layer, sizes)}, new weights"))
            resize(layer, sizes)
        for path, layer in self.model.named_modules():
            was = describe(layer) if isinstance(layer, CONVOLUTIONS) else ""
            if make_safe(layer):
                changes.append(Change(path, was, f"{describe(layer)}, its stride apart from its product"))
        order = self._order()
        changes.sort(key=lambda change: order.get(change.layer, len(order)))
        if whole and self.graph is not None:
            free_training(self.model, self.graph, self.choice)
            rewrite_literals(self.net, scale)
            return rewrite(self.model, self.graph, self.sites, new), changes
        swap_modules(self.model, new)
        return self.model, changes

    def _trace(self) -> fx.Graph | None:
        if is_layer_of_torch(self.model, self.choice):
            return None
        try:
            return trace(self.model, self.choice)
        except UntraceableError as error:
            if self.probe.map != (1, 1):
                raise
            self.untraced = f"where it calls functions, for {error}"
        return None

    def _make(self, site: Site) -> Activation:
        dim = self.net.dims[site]
        spec = copy.deepcopy(self.spec) if isinstance(self.spec, nn.Module) else self.spec
        new = activation(spec, dim)
        if new.dim != dim:
            raise ValueError(f"{site.name} acts along dim {dim}, the activation given along {new.dim}; give its spec instead")
        like = next(self.model.parameters(), None)
        return (new if like is None else new.to(like.device, like.dtype)).train(self.model.training)

    def _resized(self, scale: Scale) -> dict[str, dict[str, int]]:
        """The new widths of every layer that changes."""
        layers: dict[str, dict[str, int]] = {}
        for (path, attribute), use in self.net.uses.items():
            if scale.size(use) != use.size:
                layers.setdefault(path, {})[attribute] = scale.size(use)
        return layers

    def _counter(self) -> Callable[[Widths], int]:
        """A function that counts the parameters the converted model will have, from the widths of the components."""
        layers = {path: self.model.get_submodule(path) for path, _ in self.net.uses}
        old = {site.module: self.model.get_submodule(site.module) for site in self.active if site.module is not None}
        others = count_parameters(self.model) - sum(count_parameters(each) for each in (*layers.values(), *old.values()))
        others += len(self.active) * count_parameters(self.probe)

        @cache
        def count(widths: Widths) -> int:
            sizes = self._resized(Scale(self.net, self.components, widths))
            return others + sum(parameter_count(layer, sizes.get(path, {})) for path, layer in layers.items())

        return count

    def _order(self) -> dict[str, int]:
        names = {site.node: site.name for site in self.sites if site.node is not None}
        nodes = [names.get(node, str(node.target)) for node in self.graph.nodes] if self.graph is not None else []
        for name, _ in self.model.named_modules():
            # A transformer layer's activation acts after its first linear layer, and need not be a module.
            nodes += [name, child(name.rpartition(".")[0], "activation")] if name.endswith("linear1") else [name]
        return {name: i for i, name in enumerate(dict.fromkeys(nodes))}

    def _refusal(self, refused: dict[Site, str], skipping: bool) -> str:
        site, reason = next(iter(refused.items()))
        before, after = self.probe.map
        others = f" (and {len(refused) - 1} more: {', '.join(s.name for s in [*refused][1:])})" if len(refused) > 1 else ""
        advice = f"leave it with keep={[site.name]}, or all such with skip_pinned=True"
        advice = "no activation is left to convert" if skipping else advice
        return f"cannot put {self.probe.spec} ({before}→{after}) at {site.name}{others}: {reason}; {advice}"


def _matches(site: Site, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(site.name, pattern) for pattern in patterns)


def _check_lazy(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise ValueError(
                f"{name} is a {type(module).__name__} that has seen no input; run the model once before converting it"
            )
