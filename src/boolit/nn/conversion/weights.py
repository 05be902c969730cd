"""Old weights in resized layers: those that survive, or those with which the model computes what it did."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn.conversion.constraints import Axes, ChannelPart, LayerWidth, WidthConstraints
from boolit.nn.conversion.layers import parameter_axes
from boolit.nn.conversion.sites import Site
from boolit.nn.conversion.widths import Scale, WidthComponent
from boolit.nn.gates import Activation

State = dict[str, dict[str, Any]]


def old_state(model: nn.Module, paths: Iterable[str]) -> State:
    """Copies of the parameters and buffers of some layers."""
    return {path: copy.deepcopy(model.get_submodule(path).state_dict()) for path in paths}


class Layout:
    """Where the old channels of each part are among the new ones: a list of old numbers, with -1 for a new channel.

    ``keep`` lets the first ones survive. ``exact`` gives every old channel before an activation partners, and finds each
    output that was again among those of the gates.
    """

    def __init__(self, axes: Axes, scale: Scale, components: Collection[WidthComponent], gates: ExactGates | None) -> None:
        self._axes, self._scale, self._gates = axes, scale, gates
        self.before = {root for one in components for root in one.before}
        self._after = {root for one in components for root in one.after}

    def of(self, use: LayerWidth) -> Tensor | None:
        """The old numbers of a layer's channels; None where they cannot be told."""
        starts = itertools.accumulate((part.size for part in use.parts), initial=0)
        taken = [(self._part(part), start) for part, start in zip(use.parts, starts, strict=False)]
        channels, size = torch.cat([torch.where(one < 0, -1, one + start) for one, start in taken]), use.size // use.times
        places = torch.arange(use.times)
        if use.times == 1 or use.order == "channels":
            return torch.where(channels[:, None] < 0, -1, channels[:, None] * use.times + places).flatten()
        if use.order == "positions" and len(use.parts) == 1:
            return torch.where(channels < 0, -1, channels + places[:, None] * size).flatten()
        return None

    def _part(self, part: ChannelPart) -> Tensor:
        size, root, old = self._scale.part(part), self._axes.root(part.axis), torch.arange(part.size)
        if self._gates and root in self.before:
            return torch.full((size,), -1).index_copy(0, self._gates.places(part.size), old)
        if self._gates and root in self._after:
            return torch.full((size,), -1).index_copy(0, old + self._gates.member * part.size, old)
        return torch.where(torch.arange(size) < part.size, torch.arange(size), -1)


class ExactGates:
    """How gates compute an old activation: its input first in each group, zeros beside it, and one member's outputs."""

    def __init__(self, gate: Activation) -> None:
        self.gate, self.k, self.member, self.halves = gate, gate.map[0], 0, gate.spec.endswith("_halves")

    def places(self, size: int) -> Tensor:
        """Where the old channels are among the new ones before the activation."""
        return torch.arange(size) * (1 if self.halves else self.k)

    def represent(self, old: Callable[[Tensor], Tensor]) -> bool:
        """Whether one of the members is the old activation; remembers which."""
        groups = 2 * self.gate.divisor
        x = torch.linspace(-9, 9, 37 * groups, dtype=torch.float64).view(-1, groups)
        wide = x.new_zeros(len(x), groups * self.k)
        wide[:, self.places(groups)] = x
        with torch.no_grad():
            wanted, made = old(x), self.gate.to(torch.float64)(wide)
        members = [made[:, i : i + groups] for i in range(0, made.shape[1], groups) if wanted.shape == x.shape]
        same = [i for i, member in enumerate(members) if torch.allclose(member, wanted, rtol=1e-9, atol=1e-12)]
        self.member = same[0] if same else 0
        return bool(same)


def old_function(model: nn.Module, site: Site) -> Callable[[Tensor], Tensor]:
    """What was computed at a site, for float64."""
    held: Any = model.get_submodule(site.module) if site.module is not None else None
    if held is None and not site.nodes:
        held = model.get_submodule(site.name.rpartition(".")[0]).activation
    if held is not None:
        return copy.deepcopy(held).double() if isinstance(held, nn.Module) else held
    function: Any = getattr(F, site.place.call, None) or getattr(torch, site.place.call)
    options = {name: value for name, value in site.nodes[0].kwargs.items() if name not in ("input", "inplace")}
    return lambda x: function(x.clone(), *site.nodes[0].args[1:], **options)


def transfer(model: nn.Module, constraints: WidthConstraints, layout: Layout, old: State, exact: bool) -> set[str]:
    """Puts old weights into resized layers; returns those where it could not be told which goes where."""
    lost, axes = set(), constraints.axes
    norms = {link.norm for link in constraints.links}
    bare = {axes.root(link.before.axis) for link in constraints.links if not link.norm}
    for path, tensors in old.items():
        layer = model.get_submodule(path)
        uses = {name: use for (where, name), use in constraints.layer_widths.items() if where == path}
        taken = {name: index for name, use in uses.items() if (index := layout.of(use)) is not None}
        if len(taken) < len(uses):
            lost.add(path)
            continue
        groups = int(getattr(layer, "groups", 1))
        taken |= {f"{name}/": index[: len(index) // groups] for name, index in taken.items()}
        roots = {name: {axes.root(part.axis) for part in use.parts} for name, use in uses.items()}
        # A filter of a partner that is zero itself must not be zero too, nor a row before a norm that is: none would learn.
        depthwise = groups > 1 and not roots.get("groups", {-1}).isdisjoint(layout.before)
        zeros = not depthwise and not roots.get("out_features", roots.get("out_channels", bare)).isdisjoint(bare)
        for name, widths in parameter_axes(layer).items():
            if name in tensors and widths[0].startswith(("num_", "normalized")):
                empty = [name == "bias" or (name == "weight" and path in norms)]
            else:
                empty = [not width.startswith("out_") or zeros or name == "bias" for width in widths]
            if name in tensors:
                _fill(getattr(layer, name), tensors[name], [*map(taken.get, widths)], [each and exact for each in empty])
    return lost


def _fill(new: Tensor, old: Tensor, taken: list[Tensor | None], empty: list[bool]) -> None:
    """``new`` becomes ``old`` where the indices say; zero elsewhere along the dimensions of which ``empty`` says so."""
    with torch.no_grad():
        known = torch.ones(new.shape, dtype=torch.bool)
        for dim, (given, zero) in enumerate(zip(taken, empty, strict=True)):
            index = torch.arange(new.shape[dim]) if given is None else given
            here = ((index >= 0) & (index < old.shape[dim])).view([-1 if i == dim else 1 for i in range(new.dim())])
            known = known & here
            if zero:
                new.mul_(here.to(new))
            old = old.index_select(dim, index.clamp(0, old.shape[dim] - 1).to(old.device))
        new.copy_(torch.where(known.to(new.device), old, new))
