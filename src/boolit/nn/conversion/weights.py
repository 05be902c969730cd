"""Old weights in resized layers: the ones that survive, or the ones with which the model computes what it did."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.nn.conversion.channels import ChannelAnalysis, Channels, Part
from boolit.nn.conversion.layers import CHANNEL_NORMS, CONVOLUTION, parameter_axes, widths
from boolit.nn.conversion.sites import Site
from boolit.nn.conversion.widths import Scale, WidthGroup
from boolit.nn.gates import Activation


class ExactGates:
    """How a gate computes the old activation: from its input and zeros, among the outputs of one member."""

    def __init__(self, gate: Activation) -> None:
        self.gate, self.k, self.member, self.halves = gate, gate.channels[0], 0, gate.spec.endswith("_halves")
        self.permutes = self.halves or gate.feature_factor * self.k != 1  # the order of the old channels changes

    def positions(self, size: int) -> Tensor:
        """Return the positions of the old channels among the new ones before the activation."""
        return torch.arange(size) * (1 if self.halves else self.k)

    def represent(self, site: Site) -> bool:
        """Return whether a gate of the ensemble computes the old activation at a site, if its other operands are 0."""
        groups = 2 * self.gate.width_multiple
        x = torch.linspace(-9, 9, 37 * groups, dtype=torch.float64).view(-1, groups)
        wide = x.new_zeros(len(x), groups * self.k)
        wide[:, self.positions(groups)] = x
        with torch.no_grad():
            expected, made = _old_function(site)(x), self.gate.to(torch.float64)(wide)
        members = made.split(groups, dim=1) if expected.shape == x.shape else ()
        same = [i for i, member in enumerate(members) if torch.allclose(member, expected, rtol=1e-9, atol=1e-12)]
        self.member = same[0] if same else 0
        return bool(same)

    def refuse(self, analysis: ChannelAnalysis, sites: Sequence[Site], groups: Sequence[WidthGroup]) -> None:
        """Refuse other activations, and layers over groups of channels whose number grows."""
        refusals, axes = analysis.refusals, analysis.axes
        for site in sites:
            if not self.represent(site):
                advice = "with weights='exact' use or_ail, or_and_ail_d, max or the like in place of ReLU"
                refusals[site] = f"{self.gate.spec} of a channel and zeros is not {site.was}; {advice}"
        factors = {root: (factor, group) for group in groups for root, factor in group.factors.items()}
        for (path, attribute), use in analysis.layer_widths.items():
            layer = analysis.model.get_submodule(path)
            grouped = isinstance(layer, CONVOLUTION) and layer.in_channels != layer.groups > 1
            if attribute in ("normalized_shape", "num_channels") or (grouped and self.permutes):
                for root in factors.keys() & {axes.root(part.axis) for part in use.parts}:
                    factor, group = factors[root]
                    for site in [link.site for link in group.links if link.site and factor * self.k != 1]:
                        reason = f"{path} treats its channels in groups, so weights='exact' cannot add any"
                        refusals.setdefault(site, reason)
        for site in sites if self.permutes else ():
            if sum(link.site is site for link in analysis.links) > len(site.nodes):
                reason = f"it acts on a concatenation, where weights='exact' cannot take {self.gate.spec}"
                refusals.setdefault(site, reason)


def _old_function(site: Site) -> Callable[[Tensor], Tensor]:
    if site.module is not None:
        return copy.deepcopy(site.module).double()
    function: Any = getattr(F, site.place.call, None) or getattr(torch, site.place.call)
    _, args, kwargs = site.nodes[0].call or (None, (), {})
    options = {name: value for name, value in kwargs.items() if name not in ("input", "inplace")}
    return lambda x: function(x.clone(), *args[1:], **options)


class _Layout:
    """Positions of the old channels among the new ones.

    With ``weights="keep"`` the first ones survive. With ``"exact"`` every old channel before an activation gets partners,
    and is found among the outputs of one member after it.
    """

    def __init__(self, analysis: ChannelAnalysis, scale: Scale, gates: ExactGates | None) -> None:
        self._axes, self._scale, self._gates = analysis.axes, scale, gates
        links = [link for link in analysis.links if link.site]
        self.before, self._after = (
            {self._axes.root(part.axis) for part in parts}
            for parts in zip(*((link.before, link.after) for link in links), strict=True)
        )

    def indices(self, use: Channels) -> Tensor:
        """Return the old index of each new channel of a layer, -1 for new ones."""
        starts = itertools.accumulate((part.size for part in use.parts), initial=0)
        pieces = [(self._part(part), start) for part, start in zip(use.parts, starts, strict=False)]
        channels = torch.cat([torch.where(piece < 0, -1, piece + start) for piece, start in pieces])[:, None]
        return torch.where(channels < 0, -1, channels * use.times + torch.arange(use.times)).flatten()

    def _part(self, part: Part) -> Tensor:
        size, root, old = self._scale.part(part), self._axes.root(part.axis), torch.arange(part.size)
        if self._gates and root in self.before:
            return torch.full((size,), -1).index_copy(0, self._gates.positions(part.size), old)
        if self._gates and root in self._after:
            return torch.full((size,), -1).index_copy(0, old + self._gates.member * part.size, old)
        return torch.where(torch.arange(size) < part.size, torch.arange(size), -1)


def transfer(
    analysis: ChannelAnalysis, scale: Scale, gates: ExactGates | None, old: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Put old weights into resized layers."""
    axes, layout = analysis.axes, _Layout(analysis, scale, gates)
    norms, bare = set(), set()  # norms just before an activation, and axes without one
    for link in analysis.links:
        for node in link.site.nodes if link.site else ():
            if isinstance(node.inputs[0].module, CHANNEL_NORMS):
                norms.add(node.inputs[0].name)
            else:
                bare.add(axes.root(link.before.axis))
    for path, tensors in old.items():
        layer = analysis.model.get_submodule(path)
        uses = {name: use for (layer_path, name), use in analysis.layer_widths.items() if layer_path == path}
        indices = {name: layout.indices(use) for name, use in uses.items()}
        groups = int(getattr(layer, "groups", 1))
        indices |= {f"{name}/": index[: len(index) // groups] for name, index in indices.items()}
        roots = {name: {axes.root(part.axis) for part in use.parts} for name, use in uses.items()}
        # New rows are zero, except filters whose input is zero and rows before a norm that is: those would not learn.
        depthwise = not layout.before.isdisjoint(roots.get("groups", ()))
        outputs = [*widths(layer)][:2][-1]
        zero_rows = not depthwise and not roots[outputs].isdisjoint(bare)
        for name, axis_names in parameter_axes(layer).items():
            if name in tensors:
                if len(roots) == 1:
                    zero = [name == "bias" or (name == "weight" and path in norms)]
                else:
                    zero = [width.rstrip("/") != outputs or zero_rows or name == "bias" for width in axis_names]
                exact = [gates is not None and each for each in zero]
                _fill(getattr(layer, name), tensors[name], [*map(indices.get, axis_names)], exact)


def _fill(new: Tensor, old: Tensor, indices: Sequence[Tensor | None], zero: Sequence[bool]) -> None:
    """Copy old weights into a resized parameter.

    Args:
        new: the resized parameter.
        old: its former value.
        indices: for each dimension the old index of every new one, -1 for a new channel; None keeps the order.
        zero: for each dimension whether new channels are zero, instead of what ``new`` holds.
    """
    with torch.no_grad():
        known = torch.ones(new.shape, dtype=torch.bool)
        for dim, (given, zeros) in enumerate(zip(indices, zero, strict=True)):
            index = torch.arange(new.shape[dim]) if given is None else given
            here = ((index >= 0) & (index < old.shape[dim])).view([-1 if i == dim else 1 for i in range(new.dim())])
            known = known & here
            if zeros:
                new.mul_(here.to(new))
            old = old.index_select(dim, index.clamp(0, old.shape[dim] - 1).to(old.device))
        new.copy_(torch.where(known.to(new.device), old, new))
