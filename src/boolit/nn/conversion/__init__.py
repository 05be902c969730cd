"""Other activations in a model that exists: found by running or tracing it, put in, and the layers around them resized."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from typing import Any, Literal

from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy

from boolit.nn.conversion.capture import UntraceableError, capture, first_line, run, tensors, undisturbed
from boolit.nn.conversion.constraints import WidthConstraints
from boolit.nn.conversion.layers import RESIZABLE, describe, parameter_count
from boolit.nn.conversion.propagation import Propagation
from boolit.nn.conversion.recipe import Replacements, apply, from_pretrained, remember
from boolit.nn.conversion.report import Budget, Change, Conversion, FoundActivation, Weights
from boolit.nn.conversion.sites import ActivationChoice, Site, child, choose, find_sites, operation_name, untraced_sites
from boolit.nn.conversion.weights import ExactGates, Layout, old_function, old_state, transfer
from boolit.nn.conversion.widths import Scale, WidthComponent, Widths, components, fit_widths, round_widths
from boolit.nn.gates import Activation
from boolit.nn.specs import activation
from boolit.nn.width import count_parameters

__all__ = ["Conversion", "activations", "convert", "from_pretrained"]

Spec = str | type[nn.Module] | Callable[[Tensor], Tensor]
Gated = Literal["keep", "replace"]


def convert(
    model: nn.Module,
    spec: Spec,
    *,
    budget: Budget = "width",
    replace: Sequence[str | type[nn.Module]] | None = None,
    only: str | Sequence[str] = "*",
    keep: str | Sequence[str] = (),
    skip_pinned: bool = False,
    example: Any = None,
    gated: Gated = "keep",
    weights: Weights = "new",
) -> Conversion:
    """A copy of a model with its activations replaced by ``spec``, and its layers resized so that it still runs.

    The copy has the class, the forward and the names of the original. Where a width cannot change it is a ValueError that
    names the activation.

    Args:
        model: any module that runs on an example, or that torch.fx can trace; for a 1→1 activation, any module.
        spec: what `boolit.activation` takes.
        budget: ``width`` keeps the width before each activation, ``params`` scales all free widths by one factor to keep the
            number of parameters; both round to multiples the activation can take.
        replace: which activations go: names such as "relu", or classes; torch's pointwise ones but sigmoids and shrinkages,
            and modules named like them, unless given.
        only: patterns of fnmatch for the names, in the model, of those to replace.
        keep: patterns for the names of those to leave.
        skip_pinned: whether to leave those whose width cannot change, instead of refusing.
        example: what to run the model on, once: a tensor, a tuple of positional arguments, or a dict of keyword arguments;
            without it torch.fx has to trace the forward.
        gated: of a product ``act(gate(x)) * up(x)``, whether to ``keep`` it, with its activation replaced, or to ``replace``
            all of it by the gate of both.
        weights: of layers whose shape changes: ``new`` by torch's defaults; ``keep`` the rows and columns that survive;
            ``exact`` gives each old channel partners that are zero: the model computes what it did, where the gate can.

    Shape: of the model, as before.

    Example:
        >>> mlp = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> print(convert(mlp, "or_ail", budget="params"))
        or_ail put in, budget='params': 641 → 647 parameters (+0.9%)
          layer  was            now            widths   parameters  weights
          0      Linear(8, 64)  Linear(8, 68)           576 → 612   new
          1      ReLU()         or_ail         68 → 34
          2      Linear(64, 1)  Linear(34, 1)           65 → 35     new
    """
    for name, value, known in (
        *(("budget", budget, ("width", "params")), ("gated", gated, ("keep", "replace"))),
        ("weights", weights, ("new", "keep", "exact")),
    ):
        if value not in known:
            choice = " or ".join(f'"{word}"' for word in known)
            raise ValueError(f"unknown {name} {value!r}; choose {choice}")
    if weights == "exact" and (budget == "params" or gated == "replace"):
        raise ValueError('weights="exact" decides the widths: use it with budget="width" and gated="keep"')
    job = ConversionJob(copy.deepcopy(model), spec, choose(replace), example)
    left = job.select([only] if isinstance(only, str) else only, [keep] if isinstance(keep, str) else keep)
    left |= job.solve(skip_pinned, gated, weights)
    before = count_parameters(model)
    changes = job.apply(job.scale(budget, before), weights)
    job.verify(model)
    return Conversion(job.model, job.probe.spec, budget, changes, left, (before, count_parameters(job.model)))


def activations(model: nn.Module, example: Any = None) -> list[FoundActivation]:
    """The activations `convert` would replace: each with ``name``, ``kind``, ``width`` (None if not known) and ``owner``.

    Args:
        model: as in `convert`; it is not changed.
        example: as in `convert`.

    Example:
        >>> activations(nn.Sequential(nn.Linear(8, 64), nn.ReLU()))
        [FoundActivation(name='1', kind='ReLU()', width=64, owner='')]
    """
    job = ConversionJob(copy.deepcopy(model), "identity", choose(None), example)
    job.solve(False, "keep", "new")
    return [FoundActivation(site.name, site.was, job.constraints.widths.get(site), site.place.owner) for site in job.sites]


class ConversionJob:
    """The conversion of ``model``, which it changes."""

    def __init__(self, model: nn.Module, spec: Spec, choice: ActivationChoice, example: Any) -> None:
        if hasattr(model, "_orig_mod"):
            raise ValueError("the model is compiled: convert what torch.compile was given, model._orig_mod, and compile again")
        for name, module in model.named_modules():
            if any(map(is_lazy, module.parameters(recurse=False))):
                seen = f"{name} is a {type(module).__name__} that has seen no input"
                raise ValueError(f"{seen}; run the model once before converting it")
        self.model, self.spec, self.example = model, spec, example
        self.probe = activation(spec)
        self.untraced, self.graph = "", None
        try:
            self.graph = capture(model, example, choice)
        except UntraceableError as error:
            if self.probe.map != (1, 1):
                raise
            self.untraced = f"where it calls functions, for {error}"
        self.sites = untraced_sites(model, choice) if self.untraced else find_sites(model, self.graph, choice)
        if not self.sites:
            names = ", ".join(sorted(choice.names)) or choice.classes
            raise ValueError(f"{type(model).__name__} calls none of {names}; say which to replace with replace=[…]")
        self.active = list(self.sites)
        self.products: dict[fx.Node, Site] = {}
        self.exact: ExactGates | None = None
        self.constraints = WidthConstraints(model)
        self.components: list[WidthComponent] = []

    def select(self, only: Sequence[str], keep: Sequence[str]) -> dict[str, str]:
        """Takes the activations whose names match ``only`` and not ``keep``; returns the others."""
        for pattern in (*only, *keep):
            if not any(fnmatchcase(site.name, pattern) for site in self.sites):
                raise ValueError(f"no activation is called {pattern!r}; there are {', '.join(s.name for s in self.sites)}")
        chosen, kept = ({site for site in self.sites for one in some if fnmatchcase(site.name, one)} for some in (only, keep))
        self.active = [site for site in self.sites if site in chosen - kept]
        unseen = {type(self.model).__name__: self.untraced} if self.untraced else {}
        return {site.name: "as asked" for site in self.sites if site not in self.active} | unseen

    def solve(self, skip_pinned: bool, gated: Gated, weights: Weights) -> dict[str, str]:
        """Finds which widths hang together; refuses what cannot be, or leaves and returns it."""
        left: dict[str, str] = {}
        self.exact = ExactGates(self.probe) if weights == "exact" else None
        self.products = self._products() if gated == "replace" and self.probe.divisor > 1 else {}
        while True:
            refused = self._propagate(widen=False)
            # The filters of a channel are neighbours, as the partners of a gate are unless it takes halves.
            if refused and not (self.exact and self.exact.halves) and len(self._propagate(widen=True)) >= len(refused):
                self._propagate(widen=False)
            refused = self.constraints.refusals
            if not refused:
                return left
            self.active = [site for site in self.active if site not in refused]
            if not skip_pinned or not self.active:
                raise ValueError(self._refusal(refused, skip_pinned))
            left |= {site.name: reason for site, reason in refused.items()}

    def _propagate(self, widen: bool) -> dict[Site, str]:
        apart = self.exact is not None
        propagation = Propagation(self.model, self.active, self.probe, self.products, widen, apart)
        if self.graph is not None:
            propagation.walk(self.graph)
        if propagation.ungated:
            self.products = {node: site for node, site in self.products.items() if site not in propagation.ungated}
            return self._propagate(widen)
        self.constraints = propagation.constraints
        self.components = components(self.constraints, self.exact.k if self.exact else 0)
        if self.exact:
            self._refuse_inexact(self.exact)
        return self.constraints.refusals

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

    def apply(self, scale: Scale, weights: Weights) -> list[Change]:
        """Resizes the layers and puts the activations in."""
        sizes, order = self._new_sizes(scale), self._order()
        layers = {path: layer for path, layer in self.model.named_modules() if isinstance(layer, RESIZABLE) or path in sizes}
        was = {path: describe(layer) for path, layer in layers.items()}
        counts = {path: count_parameters(self.model.get_submodule(path)) for path in sizes}
        old = old_state(self.model, sizes) if weights != "new" else {}
        widths = {link.site: (scale.part(link.before), scale.part(link.after)) for link in self.constraints.links}
        replaced = Replacements(self.model, self.graph, self.sites, self.active, self.products, self.constraints)
        recipe = replaced.recipe(self.probe.spec, sizes, scale)
        safe = apply(self.model, recipe, self._make)
        layout = Layout(self.constraints.axes, scale, self.components, self.exact)
        lost = transfer(self.model, self.constraints, layout, old, self.exact is not None)
        said = {"new": "new", "keep": "kept", "exact": "exact"}[weights]
        now = {path: describe(self.model.get_submodule(path)) for path in (*sizes, *safe)}
        changes = [Change(site.name, site.was, self.probe.spec, widths.get(site)) for site in self.active]
        for path, count in counts.items():
            pair = count, count_parameters(self.model.get_submodule(path))
            changes.append(Change(path, was[path], now[path], None, pair, "new" if path in lost else said))
        changes += [Change(path, was[path], f"{now[path]}, its stride apart from its product") for path in safe]
        if isinstance(self.spec, str):
            remember(self.model, recipe, self.constraints, scale)
        return sorted(changes, key=lambda change: order.get(change.layer, len(order)))

    def verify(self, original: nn.Module) -> None:
        """Runs the converted model on the example, if there is one, beside the original."""
        if self.example is None:
            return
        name = type(original).__name__
        with undisturbed(original):
            wanted = [*tensors(run(original, self.example))]
        with undisturbed(self.model):
            try:
                found = [*tensors(run(self.model, self.example))]
            except Exception as error:
                raise ValueError(f"converted, {name} does not run on the example: {first_line(error)}") from error
        if [x.shape for x in wanted] != [x.shape for x in found]:
            raise ValueError(f"converted, {name} makes other shapes of the example; leave activations with keep=[…]")
        pairs = [(x, y) for x, y in zip(wanted, found, strict=True) if x.is_floating_point() and x.numel()]
        if self.exact and any((x - y).abs().max() > 1e-4 * x.abs().max() for x, y in pairs):
            raise ValueError(f'{name} does something between layers and activations that weights="exact" does not know')

    def _products(self) -> dict[fx.Node, Site]:
        """The products in which an activation is one of two factors, and used nowhere else."""
        found: dict[fx.Node, Site] = {}
        for site in self.active:
            users = [user for node in site.nodes for user in node.users]
            once = len(users) == len(site.nodes) and all(len(user.all_input_nodes) == 2 for user in users)
            if once and all(operation_name(user) == "mul" for user in users):
                found |= dict.fromkeys(users, site)
        return found

    def _refuse_inexact(self, gates: ExactGates) -> None:
        """An activation that the gates are not, and norms over several channels of which there are more now."""
        refusals, axes = self.constraints.refusals, self.constraints.axes
        for site in self.active:
            if not gates.represent(old_function(self.model, site)):
                advice = "with weights='exact' use or_ail, or_and_ail_d, max or the like in place of ReLU"
                refusals[site] = f"{gates.gate.spec} of a channel and zeros is not {site.was}; {advice}"
        mixed = gates.halves or self.probe.feature_factor * gates.k != 1  # old channels are not where they were in order
        grown = [(root, one.links) for one in self.components for root in (*one.before, *one.after)]
        kept = {root for one in self.components for root, ratio in one.after.items() if ratio * gates.k == 1}
        for (path, attribute), use in self.constraints.layer_widths.items():
            inside, groups = (getattr(self.model.get_submodule(path), name, 1) for name in ("in_channels", "groups"))
            grouped = attribute in ("normalized_shape", "num_channels") or (mixed and inside != groups > 1)
            roots = {axes.root(part.axis) for part in use.parts if grouped} - kept
            for link in (link for root, links in grown if root in roots for link in links):
                refusals.setdefault(link.site, f"{path} treats its channels in groups, so weights='exact' cannot add any")
        for site in self.constraints.several if mixed else ():
            refusals.setdefault(site, f"it acts on a concatenation, where weights='exact' cannot take {gates.gate.spec}")

    def _make(self, spec: str, dim: int) -> Activation:
        given: Any = self.spec if spec == self.probe.spec else spec
        new = activation(copy.deepcopy(given) if isinstance(given, nn.Module) else given, dim)
        if new.dim != dim:
            raise ValueError(f"an activation acts along dim {dim}, the one given along {new.dim}; give its spec instead")
        return new

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
        names = {node: site.name for site in self.sites for node in site.nodes}
        nodes = [names.get(node, str(node.target)) for node in self.graph.nodes] if self.graph is not None else []
        for name, _ in self.model.named_modules():
            # A transformer layer's activation acts after its first linear layer, and need not be a module.
            nodes += [name, child(name.rpartition(".")[0], "activation")] if name.endswith("linear1") else [name]
        return {name: i for i, name in enumerate(dict.fromkeys(nodes))}

    def _refusal(self, refused: dict[Site, str], skipping: bool) -> str:
        (site, *others), reason = refused, next(iter(refused.values()))
        more = f" (and {len(others)} more: {', '.join(other.name for other in others)})" if others else ""
        advice = f"leave it with keep={[site.name]}, or all such with skip_pinned=True"
        advice = "no activation is left to convert" if skipping else advice
        before, after = self.probe.map
        return f"cannot put {self.probe.spec} ({before}→{after}) at {site.name}{more}: {reason}; {advice}"
