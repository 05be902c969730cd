"""Old weights in resized layers: the ones that survive, or the ones with which the model computes what it did."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn.conversion.channels import Axes, ChannelAnalysis, LayerWidth, Part
from boolit.nn.conversion.layers import fill, parameter_axes
from boolit.nn.conversion.sites import Site
from boolit.nn.conversion.widths import Scale, WidthGroup
from boolit.nn.gates import Activation


class ExactGates:
    """How a gate computes the old activation: from its input and zeros, among the outputs of one member."""

    def __init__(self, gate: Activation) -> None:
        self.gate, self.k, self.member, self.halves = gate, gate.channels[0], 0, gate.spec.endswith("_halves")

    def positions(self, size: int) -> Tensor:
        """Return the positions of the old channels among the new ones before the activation."""
        return torch.arange(size) * (1 if self.halves else self.k)

    def represent(self, model: nn.Module, site: Site) -> bool:
        """Whether the outputs of a member equal the activation at a site."""
        groups = 2 * self.gate.width_multiple
        x = torch.linspace(-9, 9, 37 * groups, dtype=torch.float64).view(-1, groups)
        wide = x.new_zeros(len(x), groups * self.k)
        wide[:, self.positions(groups)] = x
        with torch.no_grad():
            expected, made = _old_function(model, site)(x), self.gate.to(torch.float64)(wide)
        members = [made[:, i : i + groups] for i in range(0, made.shape[1], groups) if expected.shape == x.shape]
        same = [i for i, member in enumerate(members) if torch.allclose(member, expected, rtol=1e-9, atol=1e-12)]
        self.member = same[0] if same else 0
        return bool(same)

    def refuse(self, analysis: ChannelAnalysis, sites: Sequence[Site], groups: Sequence[WidthGroup]) -> None:
        """Refuse other activations, and layers over groups of channels whose number grows."""
        refusals, axes = analysis.refusals, analysis.axes
        for site in sites:
            if not self.represent(analysis.model, site):
                advice = "with weights='exact' use or_ail, or_and_ail_d, max or the like in place of ReLU"
                refusals[site] = f"{self.gate.spec} of a channel and zeros is not {site.was}; {advice}"
        mixed = self.halves or self.gate.feature_factor * self.k != 1  # the order of the old channels changes
        for (path, attribute), use in analysis.layer_widths.items():
            inputs, parts = (getattr(analysis.model.get_submodule(path), name, 1) for name in ("in_channels", "groups"))
            if attribute in ("normalized_shape", "num_channels") or (mixed and inputs != parts > 1):
                roots = {axes.root(part.axis) for part in use.parts}
                for group in groups:
                    if any(group.factors[root] * self.k != 1 for root in roots & group.factors.keys()):
                        for link in group.links:
                            reason = f"{path} treats its channels in groups, so weights='exact' cannot add any"
                            refusals.setdefault(link.site, reason)
        for site in analysis.concatenated if mixed else ():
            refusals.setdefault(site, f"it acts on a concatenation, where weights='exact' cannot take {self.gate.spec}")


def _old_function(model: nn.Module, site: Site) -> Callable[[Tensor], Tensor]:
    held: Any = model.get_submodule(site.module) if site.module is not None else None
    if held is not None:
        return copy.deepcopy(held).double()  # type: ignore[no-any-return]
    function: Any = getattr(F, site.place.call, None) or getattr(torch, site.place.call)
    options = {name: value for name, value in site.nodes[0].kwargs.items() if name not in ("input", "inplace")}
    return lambda x: function(x.clone(), *site.nodes[0].args[1:], **options)


class Layout:
    """Positions of the old channels among the new ones.

    With ``weights="keep"`` the first ones survive. With ``"exact"`` every old channel before an activation gets partners,
    and is found among the outputs of one member after it.
    """

    def __init__(self, axes: Axes, scale: Scale, links: Sequence[Any], gates: ExactGates | None) -> None:
        self._axes, self._scale, self._gates = axes, scale, gates
        self.before = {axes.root(link.before.axis) for link in links}
        self._after = {axes.root(link.after.axis) for link in links}

    def indices(self, use: LayerWidth) -> Tensor | None:
        """Return the old index of each new channel of a layer, -1 for new ones, or None if it is not known."""
        starts = itertools.accumulate((part.size for part in use.parts), initial=0)
        pieces = [(self._part(part), start) for part, start in zip(use.parts, starts, strict=False)]
        channels = torch.cat([torch.where(piece < 0, -1, piece + start) for piece, start in pieces])
        size, places = use.size // use.times, torch.arange(use.times)
        if use.times == 1 or use.order == "channels":
            return torch.where(channels[:, None] < 0, -1, channels[:, None] * use.times + places).flatten()
        if use.order == "positions" and len(use.parts) == 1:
            return torch.where(channels < 0, -1, channels + places[:, None] * size).flatten()
        return None

    def _part(self, part: Part) -> Tensor:
        size, root, old = self._scale.part(part), self._axes.root(part.axis), torch.arange(part.size)
        if self._gates and root in self.before:
            return torch.full((size,), -1).index_copy(0, self._gates.positions(part.size), old)
        if self._gates and root in self._after:
            return torch.full((size,), -1).index_copy(0, old + self._gates.member * part.size, old)
        return torch.where(torch.arange(size) < part.size, torch.arange(size), -1)


def transfer(
    model: nn.Module, analysis: ChannelAnalysis, scale: Scale, gates: ExactGates | None, old: Mapping[str, Mapping[str, Tensor]]
) -> set[str]:
    """Put old weights into resized layers and return the layers in which their positions are not known."""
    lost, axes = set(), analysis.axes
    layout = Layout(axes, scale, analysis.links, gates)
    norms = {link.norm for link in analysis.links}
    bare = {axes.root(link.before.axis) for link in analysis.links if not link.norm}
    for path, tensors in old.items():
        layer = model.get_submodule(path)
        uses = {name: use for (where, name), use in analysis.layer_widths.items() if where == path}
        indices = {name: index for name, use in uses.items() if (index := layout.indices(use)) is not None}
        if len(indices) < len(uses):
            lost.add(path)
            continue
        groups = int(getattr(layer, "groups", 1))
        indices |= {f"{name}/": index[: len(index) // groups] for name, index in indices.items()}
        roots = {name: {axes.root(part.axis) for part in use.parts} for name, use in uses.items()}
        # New rows are zero, except filters whose input is zero and rows before a norm that is: those would not learn.
        depthwise = groups > 1 and not roots.get("groups", {-1}).isdisjoint(layout.before)
        zero_rows = not depthwise and not roots.get("out_features", roots.get("out_channels", bare)).isdisjoint(bare)
        for name, widths in parameter_axes(layer).items():
            if name in tensors:
                if widths[0].startswith(("num_", "normalized")):
                    zero = [name == "bias" or (name == "weight" and path in norms)]
                else:
                    zero = [not width.startswith("out_") or zero_rows or name == "bias" for width in widths]
                exact = [gates is not None and each for each in zero]
                fill(getattr(layer, name), tensors[name], [*map(indices.get, widths)], exact)
    return lost
