"""Put other activations into an existing model and resize the layers around them."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import prune

from boolit.nn.conversion.channels import ChannelAnalysis, split_source
from boolit.nn.conversion.layers import describe, parameter_count, shapes
from boolit.nn.conversion.recipe import Recipe, apply, from_pretrained, halves, remember, replaced_modules
from boolit.nn.conversion.sites import PairGate, Site, choose, find_sites
from boolit.nn.conversion.tracing import Node, first_line, guess_example, hidden_from_compile, run, tensors, trace, undisturbed
from boolit.nn.conversion.weights import ExactGates, transfer
from boolit.nn.conversion.widths import Scale, Widths, fit_widths, round_widths, width_groups
from boolit.nn.gates import Activation
from boolit.nn.specs import activation
from boolit.nn.width import count_parameters

__all__ = ["Change", "Conversion", "FoundActivation", "Measurement", "activations", "convert", "from_pretrained"]

Spec = str | type[nn.Module] | Callable[[Tensor], Tensor]
Budget = Literal["width", "params", "flops"]
Gated = Literal["keep", "replace"]
Weights = Literal["new", "keep", "exact"]


class Change(NamedTuple):
    """A replaced activation with the widths around it, or a resized layer with its parameters, before and after."""

    layer: str
    was: str
    now: str
    widths: tuple[int, int] | None = None
    parameters: tuple[int, int] | None = None
    weights: str = ""

    def __str__(self) -> str:
        return f"{self.layer}: {self.was} → {self.now}{f', {self.weights} weights' if self.weights else ''}"


class FoundActivation(NamedTuple):
    """An activation of a model: its name, what it is, the number of channels if known, and the module that calls it."""

    name: str
    kind: str
    width: int | None
    owner: str


class Measurement(NamedTuple):
    """Trainable parameters, FLOPs and seconds of a training step of a model before and after a conversion."""

    parameters: tuple[int, int]
    flops: tuple[int, int]
    seconds: tuple[float, float]

    def __str__(self) -> str:
        microseconds = tuple(round(1e6 * each) for each in self.seconds)
        rows = {"parameters": self.parameters, "FLOPs": self.flops, "step in µs": microseconds}
        return "\n".join(f"{name}: {old:,} → {new:,} (× {new / max(old, 1):.2f})" for name, (old, new) in rows.items())


@dataclass(frozen=True)
class Conversion:
    """A converted model and a report of the changes, which ``print`` shows.

    Args:
        model: the converted model.
        original: the model that was given.
        spec: the new activation.
        budget: ``width``, ``params`` or ``flops``.
        changes: replaced activations and resized layers.
        left: activations that were not converted, with the reason.
        kept_products: products that ``gated="replace"`` could not replace, by activation, with the reason.
        parameters: trainable parameters before and after.

    Example:
        >>> done = convert(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)), "or_ail")
        >>> done.model[1].spec, done.parameters, str(done.changes[0])
        ('or_ail', (641, 609), '1: ReLU() → or_ail')
    """

    model: nn.Module
    original: nn.Module
    spec: str
    budget: Budget
    changes: list[Change]
    left: dict[str, str]
    kept_products: dict[str, str]
    parameters: tuple[int, int]

    def __str__(self) -> str:
        before, after = self.parameters
        share = f" ({after / before - 1:+.1%})" if before else ""
        rows: list[tuple[str, ...]] = [("block", "layer", "was", "now", "widths", "parameters", "weights")]
        for change in self.changes:
            block, _, layer = change.layer.rpartition(".")
            pairs = (f"{pair[0]:,} → {pair[1]:,}" if pair else "" for pair in (change.widths, change.parameters))
            rows.append((block, layer, change.was, change.now, *pairs, change.weights))
        columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
        filled = [[cell.ljust(max(map(len, column))) for cell in column] for column in columns]
        lines = ["  " + "  ".join(row).rstrip() for row in zip(*filled, strict=True)]
        lines += [f"  {name}: left, {reason}" for name, reason in self.left.items()]
        lines += [f"  {name}: product kept, {reason}" for name, reason in self.kept_products.items()]
        return "\n".join([f"{self.spec}, budget={self.budget!r}: {before:,} → {after:,} parameters{share}", *lines])

    def measure(self, example: Any, steps: int = 7) -> Measurement:
        """Measure parameters, FLOPs of a forward pass and the median time of forward and backward, before and after.

        Args:
            example: input of the model, as in `convert`.
            steps: how often to time each model; the two take turns, after a step to warm up.
        """
        from torch.utils.flop_counter import FlopCounterMode  # imports Triton, which is slow

        models = [copy.deepcopy(model).train() for model in (self.original, self.model)]
        flops, times = [], [list[float](), list[float]()]
        with torch.random.fork_rng():
            for model in models:
                with FlopCounterMode(display=False) as counter, torch.no_grad():
                    run(model, example)
                flops.append(counter.get_total_flops())
            for _ in range(steps + 1):
                for model, seconds in zip(models, times, strict=True):
                    model.zero_grad()
                    start = time.perf_counter()
                    outputs = [x for x in tensors(run(model, example)) if x.requires_grad]
                    torch.stack([x.float().square().mean() for x in outputs]).sum().backward()
                    seconds.append(time.perf_counter() - start)
        first, second = (statistics.median(seconds[1:]) for seconds in times)
        return Measurement(self.parameters, (flops[0], flops[1]), (first, second))


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
    """Return a copy of a model with its activations replaced and the layers around them resized.

    The copy has the class, the forward and the parameter names of the original. An activation that no widths allow is a
    ValueError that names it and the cause.

    Args:
        model: any module.
        spec: the new activation, as for `boolit.activation`.
        budget: what to keep. ``width`` keeps the width before each activation. ``params`` and ``flops`` scale all free
            widths by one factor to keep the number of trainable parameters, or of operations in linear and convolutional
            layers. All round to multiples that the activation can read.
        replace: names such as "relu", or classes; by default boolit's activations, GLU, and torch's pointwise activations
            except sigmoids and shrinkages.
        only: patterns, as in `fnmatch`, for the names of activations to replace.
        keep: patterns for the names of activations to leave.
        skip_pinned: leave activations whose width cannot change instead of raising an error.
        example: an input to run the model on: a tensor, a tuple of positional arguments or a dict of keyword arguments.
            By default shapes that suit the first layer are tried.
        gated: ``keep`` products ``act(gate(x)) * up(x)``, or ``replace`` each by the gate over both factors. Products of
            two halves of one layer's output, and GLU, are always replaced by a gate that reads pairs.
        weights: of layers whose shape changes: ``new`` values, ``keep`` the rows and columns that survive, or ``exact``:
            old channels get partners that are zero, so that the model computes what it did.

    Example:
        >>> mlp = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> print(convert(mlp, "or_ail", budget="params"))
        or_ail, budget='params': 641 → 647 parameters (+0.9%)
          layer  was            now            widths   parameters  weights
          0      Linear(8, 64)  Linear(8, 68)           576 → 612   new
          1      ReLU()         or_ail         68 → 34
          2      Linear(64, 1)  Linear(34, 1)           65 → 35     new
    """
    for name, value, known in (("budget", budget, Budget), ("gated", gated, Gated), ("weights", weights, Weights)):
        if value not in get_args(known):
            raise ValueError(f"unknown {name} {value!r}; choose {' or '.join(map(repr, get_args(known)))}")
    if weights == "exact" and (budget != "width" or gated == "replace"):
        raise ValueError('weights="exact" decides the widths: use it with budget="width" and gated="keep"')
    job = _Job(model, spec, replace, example, weights == "exact")
    job.select([only] if isinstance(only, str) else only, [keep] if isinstance(keep, str) else keep)
    job.solve(skip_pinned, gated, budget)
    changes = job.apply(job.scale(budget), weights)
    job.verify(model)
    parameters = count_parameters(model), count_parameters(job.model)
    return Conversion(job.model, model, job.probe.spec, budget, changes, job.left, job.kept_products, parameters)


def activations(model: nn.Module, example: Any = None) -> list[FoundActivation]:
    """Return the activations that `convert` would replace.

    Args:
        model: as in `convert`; it is not changed.
        example: as in `convert`.

    Example:
        >>> activations(nn.Sequential(nn.Linear(8, 64), nn.ReLU()))
        [FoundActivation(name='1', kind='ReLU()', width=64, owner='')]
    """
    job = _Job(model, "identity", None, example, exact=False)
    job.solve(False, "keep", "width")
    return [FoundActivation(site.name, site.was, job.analysis.widths.get(site), site.place.owner) for site in job.sites]


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise ValueError("the model is compiled; convert model._orig_mod and compile the result")
    for name, module in model.named_modules():
        here = f"{name} is" if name else "the model is"
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(f"{here} a ScriptModule, whose code cannot be changed; convert the model before scripting it")
        if any(isinstance(hook, prune.BasePruningMethod) for hook in module._forward_pre_hooks.values()):
            raise ValueError(f"{here} pruned; make that permanent with torch.nn.utils.prune.remove before converting")
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise ValueError(f"{here} a {type(module).__name__} that has seen no input; run the model once before converting")


class _Job:
    """One conversion. It changes a copy of the model."""

    def __init__(self, model: nn.Module, spec: Spec, replace: Any, example: Any, exact: bool) -> None:
        _check_model(model)
        self.model, self.spec, self.example = copy.deepcopy(model), spec, example
        self.probe = activation(copy.deepcopy(spec) if isinstance(spec, nn.Module) else spec, dim=-1)
        self.exact = ExactGates(self.probe) if exact else None
        choice = choose(replace)
        leaves = {module for module in self.model.modules() if isinstance(module, PairGate) or choice.takes(module)}
        self.trace = trace(self.model, guess_example(self.model) if example is None else example, leaves)
        self.sites = find_sites(self.model, self.trace.nodes, choice)
        if not self.sites:
            raise ValueError(f"{type(model).__name__} has none of the activations {', '.join(sorted(choice.names))}")
        self.active = list(self.sites)
        self.left: dict[str, str] = {}
        self.kept_products: dict[str, str] = {}

    def select(self, only: Sequence[str], keep: Sequence[str]) -> None:
        """Select activations by name."""
        for pattern in (*only, *keep):
            if not any(fnmatchcase(site.name, pattern) for site in self.sites):
                raise ValueError(f"no activation is called {pattern!r}; there are {', '.join(s.name for s in self.sites)}")
        for site in self.sites:
            chosen, kept = (any(fnmatchcase(site.name, pattern) for pattern in patterns) for patterns in (only, keep))
            if not chosen or kept:
                self.left[site.name] = "as requested"
            elif site.pair and not self._pairs():
                self.left[site.name] = f"it reads pairs, and {self.probe.spec} does not"
        self.active = [site for site in self.sites if site.name not in self.left]
        if not self.active:
            raise ValueError("no activation is left to convert: " + "; ".join(f"{k}: {v}" for k, v in self.left.items()))

    def _pairs(self) -> bool:
        """Whether the new activation can pair the halves of its channels."""
        try:
            return activation(halves(self.probe.spec)).channels[0] == 2
        except ValueError:
            return False

    def solve(self, skip_pinned: bool, gated: Gated, budget: Budget) -> None:
        """Find widths that depend on each other. Leave activations that they do not allow, or raise an error."""
        self.products = self._find_products(gated)
        widen = budget == "width" and not (self.exact and self.exact.halves)
        while True:
            self.analysis = ChannelAnalysis(
                self.model, self.trace, self.active, self.probe, self.products, widen, self.exact is not None
            )
            self.groups = width_groups(self.analysis, self.exact.k if self.exact else 0)
            if self.exact:
                self.exact.refuse(self.analysis, self.active, self.groups)
            refused, kept = self.analysis.refusals, self.analysis.kept_products
            if not refused and not kept:
                return
            self.products = {node: site for node, site in self.products.items() if site not in (kept or refused)}
            if kept:
                self.kept_products |= {site.name: reason for site, reason in kept.items()}
                continue
            self.active = [site for site in self.active if site not in refused]
            if not skip_pinned or not self.active:
                raise ValueError(self._refusal(refused, skip_pinned))
            self.left |= {site.name: reason for site, reason in refused.items()}

    def _find_products(self, gated: Gated) -> dict[Node, Site]:
        """Return the products to replace: those of an activation, used nowhere else, and a second factor."""
        pairs = self._pairs()
        if gated == "replace" and not pairs:
            raise ValueError(f"gated='replace' needs an activation that reads pairs, and {self.probe.spec} does not")
        products: dict[Node, Site] = {}
        for site in self.active if pairs and not self.exact else ():
            users = [user for node in site.nodes for user in node.users]
            inputs = [[each.inputs[0] if each in site.nodes else each for each in user.inputs] for user in users]
            multiplied = all(user.name == "mul" and len(user.inputs) == 2 for user in users)
            if len(users) == len(site.nodes) and not site.pair and multiplied:
                fused = all(a is not b and split_source(a) is split_source(b) is not None for a, b in inputs)
                products |= dict.fromkeys(users, site) if fused or gated == "replace" else {}
        if gated == "replace" and not products and not any(site.pair for site in self.active):
            raise ValueError("gated='replace' finds no product of an activation and another tensor")
        return products

    def scale(self, budget: Budget) -> Scale:
        """Return the new sizes under a budget."""
        groups, axes = self.groups, self.analysis.axes
        if budget == "width":
            return Scale(axes, groups, round_widths(groups))
        count, target = self._counter(budget)
        widths = fit_widths(groups, target, count)
        fixed = dict.fromkeys(link.site.name for group in groups if group.fixed for link in group.links if link.site)
        stuck = all(group.fixed for group in groups) and count(widths) != target
        if fixed and (stuck or count(round_widths(groups, Fraction(0))) > target):
            unit = "parameters" if budget == "params" else "FLOPs"
            raise ValueError(
                f"cannot keep {target:,} {unit}: with the width fixed at {', '.join(fixed)}, the nearest is "
                f'{count(widths):,}; use budget="width", or leave these with keep=[…]'
            )
        return Scale(axes, groups, widths)

    def _counter(self, budget: Budget) -> tuple[Callable[[Widths], int], int]:
        """Return a function that counts parameters or FLOPs of the converted model, and the count to keep."""
        layers = {path: self.model.get_submodule(path) for path, _ in self.analysis.layer_widths}
        flops = self.analysis.flops
        replaced = {site.module for site in self.active if site.module is not None}
        others = count_parameters(self.model) - sum(count_parameters(each) for each in (*layers.values(), *replaced))
        others += len(self.active) * count_parameters(self.probe)

        def count_at(sizes: Mapping[str, Mapping[str, int]]) -> int:
            if budget == "flops":
                return sum(each * prod(shapes(layers[path], sizes.get(path, {}))["weight"]) for path, each in flops.items())
            return others + sum(parameter_count(layer, sizes.get(path, {})) for path, layer in layers.items())

        @cache
        def count(widths: Widths) -> int:
            return count_at(self._new_sizes(Scale(self.analysis.axes, self.groups, widths)))

        return count, count_parameters(self.model) if budget == "params" else count_at({})

    def _new_sizes(self, scale: Scale) -> dict[str, dict[str, int]]:
        layers: dict[str, dict[str, int]] = {}
        for (path, attribute), use in self.analysis.layer_widths.items():
            if scale.size(use) != use.size:
                layers.setdefault(path, {})[attribute] = scale.size(use)
        return layers

    def apply(self, scale: Scale, weights: Weights) -> list[Change]:
        """Change the model and return the changes in the order of the calls."""
        sizes, layers = self._new_sizes(scale), dict(self.model.named_modules())
        was = {path: (describe(layer), count_parameters(layer)) for path, layer in layers.items()}
        old = {path: copy.deepcopy(layers[path].state_dict()) for path in sizes} if weights != "new" else {}
        recipe = self._recipe(sizes, scale)
        safe = apply(self.model, recipe, self._make)
        if old:
            transfer(self.analysis, scale, self.exact, old)
        if isinstance(self.spec, str):
            remember(self.model, recipe)
        widths = {link.site: (scale.part(link.before), scale.part(link.after)) for link in self.analysis.links}
        changes = []
        for site in self.active:
            pair = site.pair or site in self.products.values()
            spec = halves(self.probe.spec) if pair else self.probe.spec
            changes.append(Change(site.name, site.was, spec, widths.get(site)))
        word = "kept" if weights == "keep" else weights
        for path in sizes:
            layer, (text, count) = layers[path], was[path]
            changes.append(Change(path, text, describe(layer), None, (count, count_parameters(layer)), word))
        changes += [Change(path, was[path][0], f"{describe(layers[path])}, strided before its product") for path in safe]
        names = {node: site.name for site in self.sites for node in site.nodes}
        called = [names.get(node, node.name) for node in self.trace.nodes]
        return sorted(changes, key=lambda change: called.index(change.layer) if change.layer in called else len(called))

    def _recipe(self, sizes: Mapping[str, Any], scale: Scale) -> Recipe:
        """Return all changes to the model as plain data that can be stored in a configuration."""
        replaced, spec, calls = set(self.products.values()), self.probe.spec, dict[str, list[dict[str, Any]]]()
        new = {
            site: {"spec": "identity" if site in replaced else spec, "dim": dim, "pair": site.pair}
            for site, dim in self.analysis.dims.items()
        }

        def redirect(place: Any, **target: Any) -> None:
            entry = {"call": place.call, "number": place.number, **target}
            if entry not in calls.setdefault(place.owner, []):
                calls[place.owner].append(entry)

        for site, entry in new.items():
            if site.module is None:
                hidden = any(map(hidden_from_compile, site.nodes))
                redirect(site.place, name=site.name.removeprefix(f"{site.place.owner}."), eager=hidden, **entry)
        for node, site in self.products.items():
            place: Any = node.place
            name, dim = f"pair_gate_{place.number}", self.analysis.dims[site]
            redirect(place, name=name, eager=False, spec=spec, dim=dim, pair="product")
        for node, channels in self.analysis.literals.items():
            if scale.size(channels) != channels.size:
                redirect(node.place, sizes=[channels.dim, channels.size, scale.size(channels)])
        modules, isolated = replaced_modules(self.model, self.sites, new)
        paths = {path for entry in modules for path in entry["paths"]}
        for owner, entries in calls.items():
            # Calls of the same functions by the modules inside must not be counted.
            redirected = {entry["call"] for entry in entries}
            inside = paths | {path for path, names in self.trace.functions.items() if names & redirected}
            isolated |= {path for path in inside if path != owner and path.startswith(f"{owner}." if owner else "")}
        return {"layers": dict(sizes), "modules": modules, "calls": calls, "isolated": sorted(isolated - calls.keys())}

    def _make(self, spec: str, dim: int) -> Activation:
        given: Any = self.spec if spec == self.probe.spec else spec
        new = activation(copy.deepcopy(given) if isinstance(given, nn.Module) else given, dim=dim)
        if new.dim != dim:
            raise ValueError(f"an activation acts along dim {dim}, the given module along {new.dim}; pass its spec instead")
        return new

    def _refusal(self, refused: dict[Site, str], skipping: bool) -> str:
        (site, *others), reason = refused, next(iter(refused.values()))
        more = f" (and {len(others)} more: {', '.join(other.name for other in others)})" if others else ""
        advice = f"leave it with keep={[site.name]}, or all such with skip_pinned=True"
        advice = "no activation is left to convert" if skipping else advice
        before, after = self.probe.channels
        return f"cannot put {self.probe.spec} ({before}→{after}) at {site.name}{more}: {reason}; {advice}"

    def verify(self, original: nn.Module) -> None:
        """Compare the shapes, or with ``weights="exact"`` the numbers, that both models compute from the example."""
        if self.example is None:
            return
        name = type(original).__name__
        with undisturbed(original):
            expected = [*tensors(run(original, self.example))]
        with undisturbed(self.model):
            try:
                results = [*tensors(run(self.model, self.example))]
            except Exception as error:
                raise ValueError(f"converted, {name} does not run on the example: {first_line(error)}") from error
        if [x.shape for x in expected] != [x.shape for x in results]:
            raise ValueError(f"converted, {name} makes other shapes of the example; leave activations with keep=[…]")
        pairs = [(x, y) for x, y in zip(expected, results, strict=True) if x.is_floating_point() and x.numel()]
        if self.exact and any((x - y).abs().max() > 1e-4 * x.abs().max() for x, y in pairs):
            raise ValueError(f'{name} does something between layers and activations that weights="exact" does not know')
