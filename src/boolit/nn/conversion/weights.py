"""Old weights in resized layers: those that survive, or those with which the model computes what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn.conversion.constraints import ChannelPart, LayerWidth, WidthConstraints
from boolit.nn.conversion.layers import CONVOLUTIONS, parameter_axes
from boolit.nn.conversion.sites import Site
from boolit.nn.conversion.widths import Scale, WidthComponent
from boolit.nn.gates import Activation

State = dict[str, dict[str, Tensor]]


def old_state(model: nn.Module, paths: Iterable[str]) -> State:
    """Copies of the parameters and buffers of some layers."""
    return {
        path: {name: value.detach().clone() for name, value in model.get_submodule(path).state_dict().items()} for path in paths
    }


class Layout:
    """Where the old channels of each part are among the new ones: a list of old numbers, with -1 for a new channel.

    ``keep`` lets the first ones survive. ``exact`` gives every old channel before an activation partners, and finds each
    output that was again among those of the gates.
    """

    def __init__(
        self, constraints: WidthConstraints, scale: Scale, found: Iterable[WidthComponent], gates: ExactGates | None
    ) -> None:
        self._axes, self._scale, self._gates = constraints.axes, scale, gates
        components = list(found)
        self.before = {root for one in components for root in one.before}
        self.after = {root for one in components for root in one.after}

    def of(self, use: LayerWidth) -> Tensor | None:
        """The old numbers of a layer's channels; None where they cannot be told."""
        parts, start = [], 0
        for part in use.parts:
            taken = self._part(part)
            parts.append(torch.where(taken < 0, -1, taken + start))
            start += part.size
        channels = torch.cat(parts)
        if use.times == 1:
            return channels
        places = torch.arange(use.times)
        if use.order == "channels":
            spread = channels[:, None] * use.times + places
        elif use.order == "positions" and len(use.parts) == 1:
            spread = channels + places[:, None] * start
        else:
            return None
        known = (channels >= 0)[:, None] if use.order == "channels" else channels >= 0
        return torch.where(known, spread, -1).flatten()

    def _part(self, part: ChannelPart) -> Tensor:
        size, root = self._scale.part(part), self._axes.root(part.axis)
        taken = torch.full((size,), -1)
        old = torch.arange(part.size)
        if self._gates and root in self.before:
            taken[self._gates.places(part.size)] = old
        elif self._gates and root in self.after:
            taken[old + self._gates.member * part.size] = old
        else:
            kept = min(size, part.size)
            taken[:kept] = old[:kept]
        return taken


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
        members = [made[:, i : i + groups] for i in range(0, made.shape[1], groups)]
        same = [i for i, member in enumerate(members) if torch.allclose(member, wanted, rtol=1e-9, atol=1e-12)]
        self.member = same[0] if same else 0
        return bool(same)


def old_function(model: nn.Module, site: Site) -> Callable[[Tensor], Tensor]:
    """What was computed at a site."""
    if site.module is not None:
        return model.get_submodule(site.module)
    if not site.nodes:
        found: Any = model.get_submodule(site.name.rpartition(".")[0]).activation
        return found  # type: ignore[no-any-return]
    node = site.nodes[0]
    function: Any = getattr(F, site.place.call, None) or getattr(torch, site.place.call)
    options = {name: value for name, value in node.kwargs.items() if name not in ("input", "inplace")}
    return lambda x: function(x.clone(), *node.args[1:], **options)


def transfer(model: nn.Module, constraints: WidthConstraints, layout: Layout, old: State, exact: bool) -> set[str]:
    """Puts old weights into resized layers; returns those where it could not be told which goes where."""
    lost = set()
    norms = {link.norm for link in constraints.links}
    bare = {constraints.axes.root(link.before.axis) for link in constraints.links if not link.norm}
    for path, tensors in old.items():
        layer = model.get_submodule(path)
        uses = {
            name: constraints.layer_widths.get((path, name))
            for names in parameter_axes(layer).values()
            for name in map(_plain, names)
        }
        taken = {name: layout.of(use) if use else None for name, use in uses.items()}
        if any(use is not None and taken[name] is None for name, use in uses.items()):
            lost.add(path)
            continue
        produced = uses.get("out_features") or uses.get("out_channels")
        zero_rows = produced is None or any(constraints.axes.root(part.axis) in bare for part in produced.parts)
        if isinstance(layer, CONVOLUTIONS) and layer.groups == layer.in_channels > 1:
            # A filter of a partner that is zero itself must not be zero too: neither would ever learn.
            read = constraints.layer_widths[path, "in_channels"].parts
            zero_rows &= all(constraints.axes.root(part.axis) not in layout.before for part in read)
        for name, axes in parameter_axes(layer).items():
            if name in tensors and getattr(layer, name) is not None:
                _fill(
                    getattr(layer, name),
                    tensors[name],
                    [_index(taken.get(_plain(axis)), axis, layer) for axis in axes],
                    _empty(name, path in norms, zero_rows, axes) if exact else None,
                )
    return lost


def _fill(new: Tensor, old: Tensor, taken: list[Tensor | None], empty: tuple[bool, ...] | None) -> None:
    """``new`` becomes ``old`` where the indices say; zero elsewhere along the dimensions of which ``empty`` says so."""
    with torch.no_grad():
        known = torch.ones(new.shape, dtype=torch.bool)
        for dim, index in enumerate(taken):
            index = torch.arange(new.shape[dim]) if index is None else index[: new.shape[dim]]
            shape = [-1 if i == dim else 1 for i in range(new.dim())]
            here = (index >= 0).view(shape)
            if empty is not None and empty[dim]:
                new.mul_(here.to(new))
            known = known & here
            old = old.index_select(dim, index.clamp(0, old.shape[dim] - 1).to(old.device))
        new.copy_(torch.where(known.to(new.device), old, new))


def _plain(axis: str) -> str:
    return axis.removesuffix("/")


def _index(taken: Tensor | None, axis: str, layer: nn.Module) -> Tensor | None:
    """The part of an index that one group of a convolution sees."""
    if taken is None or not axis.endswith("/"):
        return taken
    size = len(taken) // int(layer.groups)  # type: ignore[arg-type]
    return taken[:size]


def _empty(name: str, in_norm: bool, zero_rows: bool, axes: tuple[str, ...]) -> tuple[bool, ...]:
    """Along which dimensions new entries are zero."""
    if axes[0].startswith(("num_", "normalized")):
        return (name == "bias" or (name == "weight" and in_norm),)
    return tuple(not axis.startswith("out_") or zero_rows or name == "bias" for axis in axes)
