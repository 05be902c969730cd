"""Put other activations into an existing model and resize the layers around them."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from math import prod
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import prune

from boolit.nn.conversion.activations import PairGate, Replacement, Site, choose, find_sites, rewrite
from boolit.nn.conversion.channels import ChannelAnalysis, split_source
from boolit.nn.conversion.layers import describe, resize, shapes
from boolit.nn.conversion.tracing import run, tensors, trace, undisturbed
from boolit.nn.conversion.widths import Scale, Widths, fit_widths, round_widths, width_groups
from boolit.nn.specs import activation
from boolit.nn.width import count_parameters

__all__ = ["Conversion", "convert"]

Spec = str | type[nn.Module] | Callable[[Tensor], Tensor]
Budget = Literal["width", "params", "flops"]
Gated = Literal["keep", "replace"]


@dataclass(frozen=True)
class Conversion:
    """A converted model and a report of the changes, which ``print`` shows.

    Args:
        model: the converted model.
        original: the model that was given.
        spec: the new activation.
        budget: ``width``, ``params`` or ``flops``.
        replaced: the activations that were replaced, by name: what they were and are.
        resized: the layers that were resized, by name.
        left: activations that were not converted, and products that ``gated="replace"`` could not replace, with the reason.
        parameters: trainable parameters before and after.

    Example:
        >>> done = convert(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)), "or_ail")
        >>> done.model[1].spec, done.parameters, done.replaced
        ('or_ail', (641, 609), {'1': 'ReLU() → or_ail, 64 → 32 channels'})
    """

    model: nn.Module
    original: nn.Module
    spec: str
    budget: Budget
    replaced: dict[str, str]
    resized: dict[str, str]
    left: dict[str, str]
    parameters: tuple[int, int]

    def __str__(self) -> str:
        before, after = self.parameters
        share = f" ({after / before - 1:+.1%})" if before else ""
        lines = [f"  {name}: {change}" for name, change in (self.replaced | self.resized).items()]
        lines += [f"  {name}: left, {reason}" for name, reason in self.left.items()]
        return "\n".join([f"{self.spec}, budget={self.budget!r}: {before:,} → {after:,} parameters{share}", *lines])

    def measure(self, example: Any, steps: int = 7) -> dict[str, tuple[float, float]]:
        """Return trainable parameters, FLOPs of a forward pass, and median seconds of a training step, before and after.

        Args:
            example: input of the model, as in `convert`.
            steps: how often to time forward and backward of each model; the two take turns, after a step to warm up.
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
        return {"parameters": self.parameters, "FLOPs": (flops[0], flops[1]), "seconds": (first, second)}


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
            except sigmoids, Softplus, Threshold and shrinkages.
        only: patterns, as in `fnmatch`, for the names of activations to replace.
        keep: patterns for the names of activations to leave.
        skip_pinned: leave activations whose width cannot change instead of raising an error.
        example: an input to run the model on: a tensor, a tuple of positional arguments or a dict of keyword arguments.
            By default shapes that suit the first layer are tried.
        gated: ``keep`` products ``act(gate(x)) * up(x)``, or ``replace`` each by the gate over both factors. Products of
            two halves of one layer's output, and GLU, are always replaced by a gate that reads pairs.

    Example:
        >>> mlp = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> print(convert(mlp, "or_ail", budget="params"))
        or_ail, budget='params': 641 → 647 parameters (+0.9%)
          1: ReLU() → or_ail, 68 → 34 channels
          0: Linear(8, 64) → Linear(8, 68), 576 → 612 parameters
          2: Linear(64, 1) → Linear(34, 1), 65 → 35 parameters
    """
    for name, value, known in (("budget", budget, Budget), ("gated", gated, Gated)):
        if value not in get_args(known):
            raise ValueError(f"unknown {name} {value!r}; choose {' or '.join(map(repr, get_args(known)))}")
    job = _Job(model, spec, replace, example)
    job.select([only] if isinstance(only, str) else only, [keep] if isinstance(keep, str) else keep)
    job.solve(skip_pinned, gated, budget)
    replaced, resized = job.apply(job.scale(budget))
    if example is not None:
        job.verify(example)
    parameters = count_parameters(model), count_parameters(job.model)
    return Conversion(job.model, model, job.probe.spec, budget, replaced, resized, job.left, parameters)


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

    def __init__(self, model: nn.Module, spec: Spec, replace: Any, example: Any) -> None:
        _check_model(model)
        self.model, self.spec = copy.deepcopy(model), spec
        self.probe = activation(copy.deepcopy(spec) if isinstance(spec, nn.Module) else spec, dim=-1)
        choice = choose(replace)
        leaves = {module for module in self.model.modules() if isinstance(module, PairGate) or choice.takes(module)}
        self.trace = trace(self.model, example, leaves)
        self.sites = find_sites(self.model, self.trace.nodes, choice)
        if not self.sites:
            raise ValueError(f"{type(model).__name__} has none of the activations {', '.join(sorted(choice.names))}")
        self.left: dict[str, str] = {}

    def select(self, only: Sequence[str], keep: Sequence[str]) -> None:
        """Select activations by name."""
        for pattern in (*only, *keep):
            if not any(fnmatchcase(site.name, pattern) for site in self.sites):
                raise ValueError(f"no activation is called {pattern!r}; there are {', '.join(s.name for s in self.sites)}")
        for site in self.sites:
            chosen, kept = (any(fnmatchcase(site.name, pattern) for pattern in patterns) for patterns in (only, keep))
            if not chosen or kept:
                self.left[site.name] = "as requested"
            elif site.pair and not self._can_pair_halves():
                self.left[site.name] = f"it reads pairs, and {self.probe.spec} does not"
        self.active = [site for site in self.sites if site.name not in self.left]
        if not self.active:
            raise ValueError("no activation is left to convert: " + "; ".join(f"{k}: {v}" for k, v in self.left.items()))

    def _can_pair_halves(self) -> bool:
        try:
            return activation(_halves(self.probe.spec)).channels[0] == 2
        except ValueError:
            return False

    def solve(self, skip_pinned: bool, gated: Gated, budget: Budget) -> None:
        """Find widths that depend on each other. Leave activations that they do not allow, or raise an error."""
        self.active = self._find_products(gated)
        while True:
            self.analysis = ChannelAnalysis(self.model, self.trace, self.active, self.probe, widen=budget == "width")
            self.groups = width_groups(self.analysis)
            refused = self.analysis.refusals
            products = {site: reason for site, reason in refused.items() if site.factor_site}
            if not refused:
                return
            if products:
                self.left |= {f"product of {site.name}": reason for site, reason in products.items()}
                self.active = [(site in products and site.factor_site) or site for site in self.active]
                continue
            self.active = [site for site in self.active if site not in refused]
            if not skip_pinned or not self.active:
                raise ValueError(self._refusal(refused, skip_pinned))
            self.left |= {site.name: reason for site, reason in refused.items()}

    def _find_products(self, gated: Gated) -> list[Site]:
        """Return the activations, or the product of one that is used nowhere else and a second factor."""
        pairs = self._can_pair_halves()
        if gated == "replace" and not pairs:
            raise ValueError(f"gated='replace' needs an activation that reads pairs, and {self.probe.spec} does not")
        result = list[Site]()
        for site in self.active:
            users = [user for node in site.nodes for user in node.users]
            inputs = [[each.inputs[0] if each in site.nodes else each for each in user.inputs] for user in users]
            multiplied = len({user.place for user in users}) == 1 and all(len(user.inputs) == 2 for user in users)
            if pairs and len(users) == len(site.nodes) and not site.pair and multiplied and users[0].name == "mul":
                fused = all(a is not b and split_source(a) is split_source(b) is not None for a, b in inputs)
                if fused or gated == "replace":
                    place: Any = users[0].place
                    site = Site(site.name, site.was, place, tuple(users), None, site.factor, "product", site)
            result.append(site)
        if gated == "replace" and not any(site.pair for site in result):
            raise ValueError("gated='replace' finds no product of an activation and another tensor")
        return result

    def scale(self, budget: Budget) -> Scale:
        """Return the new sizes under a budget."""
        groups, axes = self.groups, self.analysis.axes
        if budget == "width":
            return Scale(axes, groups, round_widths(groups))
        count, target = self._counter(budget)
        widths = fit_widths(groups, target, count)
        if any(group.fixed for group in groups) and abs(count(widths) - target) > target / 10:
            fixed = dict.fromkeys(link.site.name for group in groups if group.fixed for link in group.links if link.site)
            raise ValueError(
                f"cannot keep {target:,} {'FLOPs' if budget == 'flops' else 'parameters'}: with the width fixed at "
                f'{", ".join(fixed)}, the nearest is {count(widths):,}; use budget="width", or leave these with keep=[…]'
            )
        return Scale(axes, groups, widths)

    def _counter(self, budget: Budget) -> tuple[Callable[[Widths], int], int]:
        """Return a function that counts parameters or FLOPs of the converted model, and the count to keep."""
        layers = {path: self.model.get_submodule(path) for path, _ in self.analysis.layer_widths}
        costs = {(path, "weight"): flops for path, flops in self.analysis.flops.items()}
        if budget == "params":
            names = [(path, name) for path, layer in layers.items() for name in shapes(layer, {})]
            costs = {each: 1 for each in names if getattr(getattr(layers[each[0]], each[1], None), "requires_grad", False)}

        def total(sizes: Mapping[str, Mapping[str, int]]) -> int:
            new = {path: shapes(layer, sizes.get(path, {})) for path, layer in layers.items()}
            return sum(cost * prod(new[path][name]) for (path, name), cost in costs.items())

        target, others = total({}), 0
        if budget == "params":
            others = count_parameters(self.model) - target + len(self.active) * count_parameters(self.probe)
            others -= sum(count_parameters(module) for module in {site.module for site in self.active} if module is not None)
            target = count_parameters(self.model)
        return cache(lambda widths: others + total(self._new_sizes(Scale(self.analysis.axes, self.groups, widths)))), target

    def _new_sizes(self, scale: Scale) -> dict[str, dict[str, int]]:
        layers: dict[str, dict[str, int]] = {}
        for (path, attribute), use in self.analysis.layer_widths.items():
            if scale.size(use) != use.size:
                layers.setdefault(path, {})[attribute] = scale.size(use)
        return layers

    def apply(self, scale: Scale) -> tuple[dict[str, str], dict[str, str]]:
        """Change the model and return the replaced activations and the resized layers."""
        channels = {
            link.site: f", {scale.part(link.before):,} → {scale.part(link.after):,} channels" for link in self.analysis.links
        }
        specs = {site: _halves(self.probe.spec) if site.pair else self.probe.spec for site in self.active}
        replaced = {site.name: f"{site.was} → {spec}{channels.get(site, '')}" for site, spec in specs.items()}
        resized = {}
        for path, sizes in self._new_sizes(scale).items():
            layer = self.model.get_submodule(path)
            was, count = describe(layer), count_parameters(layer)
            resize(layer, sizes)
            resized[path] = f"{was} → {describe(layer)}, {count:,} → {count_parameters(layer):,} parameters"
        spec, dims = self.probe.spec, self.analysis.dims
        sites: dict[Site, Replacement | None] = dict.fromkeys(self.sites)
        sites |= {site: (spec, dims[site], site.pair) for site in self.active}
        sites |= {site.factor_site: ("identity", dims[site], "") for site in self.active if site.factor_site}
        rewrite(self.model, self.trace, sites, self._make)
        return replaced, resized

    def _make(self, new: Replacement) -> nn.Module:
        spec, dim, pair = new
        spec = _halves(spec) if pair else spec
        given: Any = self.spec if spec == self.probe.spec else spec
        gate = activation(copy.deepcopy(given) if isinstance(given, nn.Module) else given, dim=dim).along(dim)
        module = PairGate(gate) if pair == "product" else gate
        like = next(self.model.parameters(), None)
        return (module if like is None else module.to(like.device, like.dtype)).train(self.model.training)

    def _refusal(self, refused: dict[Site, str], skipping: bool) -> str:
        (site, *others), reason = refused, next(iter(refused.values()))
        more = f" (and {len(others)} more: {', '.join(other.name for other in others)})" if others else ""
        advice = f"leave it with keep={[site.name]}, or all such with skip_pinned=True"
        advice = "no activation is left to convert" if skipping else advice
        before, after = self.probe.channels
        return f"cannot put {self.probe.spec} ({before}→{after}) at {site.name}{more}: {reason}; {advice}"

    def verify(self, example: Any) -> None:
        """Check that the converted model runs on the example and returns tensors of the same shapes."""
        with undisturbed(self.model):
            shapes = [tuple(x.shape) for x in tensors(run(self.model, example, "converted, "))]
        if shapes != [node.shape for node in self.trace.outputs]:
            raise ValueError(
                f"converted, {type(self.model).__name__} makes other shapes of the example; leave activations with keep=[…]"
            )


def _halves(spec: str) -> str:
    return spec if spec.endswith("_halves") else f"{spec}_halves"
