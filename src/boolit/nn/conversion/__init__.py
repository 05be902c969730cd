"""Other activations in a model that exists: found by torch.fx, put in, and the layers around them resized to fit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from boolit.nn.activations import Activation
from boolit.nn.conv1x1 import make_safe
from boolit.nn.conversion.constraints import WidthConstraints
from boolit.nn.conversion.layers import CONVOLUTIONS, describe, parameter_count, resize
from boolit.nn.conversion.propagation import Propagation
from boolit.nn.conversion.rewrite import free_training, needs_graph, rewrite, rewrite_literals, swap_modules
from boolit.nn.conversion.sites import (
    ActivationChoice,
    Site,
    UntraceableError,
    child,
    choose,
    find_sites,
    is_layer_of_torch,
    trace,
    untraced_sites,
)
from boolit.nn.conversion.widths import Scale, WidthComponent, Widths, components, fit_widths, round_widths
from boolit.nn.specs import activation
from boolit.nn.width import count_parameters

__all__ = ["Conversion", "convert"]


@dataclass(frozen=True)
class Conversion:
    """A converted model and what was changed: print it to read that.

    Args:
        model: the converted model.
        spec: what was put in.
        budget: ``width`` or ``params``, as it was asked for.
        changes: each with ``layer`` (its name in the model), ``was`` and ``now``.
        left: the activations that stayed, by name, each with the reason.
        parameters: the trainable ones before and after.

    Example:
        >>> done = convert(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)), "or_ail")
        >>> done.model[1].spec, done.parameters, str(done.changes[0])
        ('or_ail', (641, 609), '1: ReLU() → or_ail')
    """

    model: nn.Module
    spec: str
    budget: Budget
    changes: list[Change]
    left: dict[str, str]
    parameters: tuple[int, int]

    def __str__(self) -> str:
        before, after = self.parameters
        share = f" ({after / before - 1:+.1%})" if before else ""
        lines = [f"{self.spec} put in, budget={self.budget!r}: {before:,} → {after:,} parameters{share}"]
        lines += [f"  {change}" for change in self.changes]
        lines += [f"  {name}: left, {reason}" for name, reason in self.left.items()]
        if isinstance(self.model, fx.GraphModule):
            lines.append("  the model is now a torch.fx.GraphModule, with every activation a module")
        return "\n".join(lines)


def convert(
    model: nn.Module,
    spec: Spec,
    *,
    budget: Budget = "width",
    replace: Sequence[str | type[nn.Module]] | None = None,
    only: str | Sequence[str] = "*",
    keep: str | Sequence[str] = (),
    skip_pinned: bool = False,
) -> Conversion:
    """A copy of a model with its activations replaced by ``spec``, and its layers resized so that it still runs.

    Layers of unchanged shape keep their weights, resized ones are initialised anew by torch's defaults. Where a width cannot
    change it is a ValueError that names the activation.

    Args:
        model: any module that torch.fx can trace; for a 1→1 activation, any module.
        spec: what `boolit.activation` takes.
        budget: ``width`` keeps the width before each activation, ``params`` scales all free widths by one factor to keep the
            number of parameters; both round to multiples the activation can take.
        replace: which activations go: names such as "relu", or classes; torch's pointwise ones but sigmoids and shrinkages
            unless given.
        only: patterns of fnmatch for the names, in the model, of those to replace.
        keep: patterns for the names of those to leave.
        skip_pinned: whether to leave those whose width cannot change, instead of refusing.

    Shape: of the model, as before.

    Example:
        >>> mlp = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> print(convert(mlp, "or_ail", budget="params"))
        or_ail put in, budget='params': 641 → 647 parameters (+0.9%)
          0: Linear(8, 64) → Linear(8, 68), new weights
          1: ReLU() → or_ail
          2: Linear(64, 1) → Linear(34, 1), new weights
    """
    if budget not in ("width", "params"):
        raise ValueError(f'unknown budget {budget!r}; choose "width" or "params"')
    job = ConversionJob(copy.deepcopy(model), spec, choose(replace))
    left = job.select([only] if isinstance(only, str) else only, [keep] if isinstance(keep, str) else keep)
    left |= job.solve(skip_pinned)
    before = count_parameters(model)
    converted, changes = job.apply(job.scale(budget, before))
    return Conversion(converted, job.probe.spec, budget, changes, left, (before, count_parameters(converted)))


Budget = Literal["width", "params"]
Spec = str | type[nn.Module] | Callable[[Tensor], Tensor]


class Change(NamedTuple):
    """One thing that was changed."""

    layer: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.was} → {self.now}"


class ConversionJob:
    """The conversion of ``model``, which it changes."""

    def __init__(self, model: nn.Module, spec: Spec, choice: ActivationChoice) -> None:
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
        self.constraints = WidthConstraints(model)
        self.components: list[WidthComponent] = []

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
            propagation = Propagation(self.model, self.active, self.probe)
            if self.graph is not None:
                propagation.walk(self.graph)
            self.constraints, self.components = propagation.constraints, components(propagation.constraints)
            refused = self.constraints.refusals
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
            return Scale(self.constraints, found, round_widths(found))
        count = self._counter()
        widths = fit_widths(found, parameters, count)
        fixed = dict.fromkeys(link.site.name for one in found if one.fixed for link in one.links)
        stuck = all(one.fixed for one in found) and count(widths) != parameters
        if fixed and (stuck or count(round_widths(found, Fraction(0))) > parameters):
            raise ValueError(
                f"cannot keep {parameters:,} parameters: with the width fixed at {', '.join(fixed)}, the nearest is "
                f'{count(widths):,}; use budget="width", or leave these with keep=[…]'
            )
        return Scale(self.constraints, found, widths)

    def apply(self, scale: Scale) -> tuple[nn.Module, list[Change]]:
        """Resizes the layers and puts the activations in."""
        new = {site: self._make(site) for site in self.active}
        changes = [Change(site.name, site.was, module.spec) for site, module in new.items()]
        whole = self.graph is not None and needs_graph(self.sites, new, self.constraints, scale)
        for path, sizes in self._new_sizes(scale).items():
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
            rewrite_literals(self.constraints, scale)
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
        dim = self.constraints.dims[site]
        spec = copy.deepcopy(self.spec) if isinstance(self.spec, nn.Module) else self.spec
        new = activation(spec, dim)
        if new.dim != dim:
            raise ValueError(f"{site.name} acts along dim {dim}, the activation given along {new.dim}; give its spec instead")
        like = next(self.model.parameters(), None)
        return (new if like is None else new.to(like.device, like.dtype)).train(self.model.training)

    def _new_sizes(self, scale: Scale) -> dict[str, dict[str, int]]:
        """The new widths of every layer that changes."""
        layers: dict[str, dict[str, int]] = {}
        for (path, attribute), use in self.constraints.layer_widths.items():
            if scale.size(use) != use.size:
                layers.setdefault(path, {})[attribute] = scale.size(use)
        return layers

    def _counter(self) -> Callable[[Widths], int]:
        """A function that counts the parameters the converted model will have, from the widths of the components."""
        layers = {path: self.model.get_submodule(path) for path, _ in self.constraints.layer_widths}
        old = {site.module: self.model.get_submodule(site.module) for site in self.active if site.module is not None}
        others = count_parameters(self.model) - sum(count_parameters(each) for each in (*layers.values(), *old.values()))
        others += len(self.active) * count_parameters(self.probe)

        @cache
        def count(widths: Widths) -> int:
            sizes = self._new_sizes(Scale(self.constraints, self.components, widths))
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
