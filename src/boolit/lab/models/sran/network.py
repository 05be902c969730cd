"""One Stratified Rule-Aware Network (Hu et al. 2021), a plain torch network: scores of the eight answers of a Raven's matrix.

It looks at panels, at rows and at pairs of rows. Three encoders read each as a picture; three gated modules, whose seven
activations are what the paper exchanges, join what was found of the parts. What comes out of a pair of rows is its rule, and
the answer is the candidate that gives the third row the rule that the first two rows have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boolit
from boolit.lab.models.sran.encoders import (
    CANDIDATES,
    COLUMNS,
    Encoder,
    both_ways,
    in_pairs,
    in_rows,
    left_and_middle,
    of_pairs,
    of_panels,
    of_rows,
    right,
)
from boolit.lab.models.unstacked import SingleRunDropout
from boolit.nn import Activation

META_TARGETS = 9  # logits of what the problem's rules are; the published loss has them with a weight of 0
ACTIVATIONS = (2, 2, 3)  # of each gated module
BRIGHTEST = 255


@dataclass(frozen=True)
class Module:
    """What enters a gated module, its pre-activation widths, and the outputs of a linear layer behind the last activation."""

    inputs: int
    widths: Sequence[int]
    outputs: int | None


def gated_modules(
    features: Sequence[int], widths: Sequence[int], activation: Activation, normalised: bool
) -> tuple[Module, Module, Module]:
    """The modules of rows, pairs and rules; ``features`` are those that encoders find in a panel, a row and a pair.

    With layer norms the module of pairs has a linear layer behind it: see `boolit.lab.models.sran`.
    """
    row, pair, embedding = (activation.out_features(widths[i]) for i in (1, 3, 6))
    pair = embedding if normalised else pair
    of_panel, of_row, of_pair = features
    return (
        Module(COLUMNS * of_panel, widths[:2], None),
        Module(2 * (row + of_row), widths[2:4], embedding if normalised else None),
        Module(pair + of_pair, widths[4:], embedding + META_TARGETS),
    )


class Network(nn.Module):
    """One network; ``encoders`` are those of panels, rows and pairs, with so many ``features``.

    ``resize`` is the side panels are brought to. With ``inverted`` the encoders see how black pixels are, from 0 to 1.

    Shape: ``(batch, 16, height, width)``, the context row by row and then the candidates, to ``(batch, 8)``.
    """

    def __init__(
        self,
        encoders: Sequence[nn.Module],
        features: Sequence[int],
        widths: Sequence[int],
        spec: str,
        normalised: bool = True,
        dropout: float = 0.5,
        resize: int | None = None,
        inverted: bool = False,
    ) -> None:
        super().__init__()
        self.resize, self.inverted = resize, inverted
        self.panel_encoder, self.row_encoder, self.pair_encoder = encoders
        shapes = gated_modules(features, widths, boolit.activation(spec), normalised)
        self.row_module, self.pair_module, self.rule_module = (_gated(shape, spec, normalised) for shape in shapes)
        self.rule_module.insert(len(self.rule_module) - 1, SingleRunDropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        x = self._seen(x)
        seen_panels, seen_rows, seen_pairs = (
            look(cast(Encoder, encoder), x)
            for look, encoder in (
                (of_panels, self.panel_encoder),
                (of_rows, self.row_encoder),
                (of_pairs, self.pair_encoder),
            )
        )
        rows = torch.cat([self._rows(seen_panels), seen_rows], -1)
        pairs = torch.cat([self._pairs(rows), seen_pairs], -1)
        rules: Tensor = self.rule_module(pairs)[..., :-META_TARGETS]
        alike = rules[:, 1:] @ rules[:, 0].unsqueeze(2)
        return alike.view(-1, 2, CANDIDATES).sum(1)

    def _seen(self, x: Tensor) -> Tensor:
        x = (BRIGHTEST - x) / BRIGHTEST if self.inverted else x
        if self.resize in (None, x.shape[-1]):
            return x
        return F.interpolate(x, (self.resize, self.resize), mode="bilinear")

    def _rows(self, panels: Tensor) -> Tensor:
        """Shape: ``(batch, 16, features)`` to ``(batch, 10, embedding)``."""
        first = cast(nn.Linear, self.row_module[0])
        beginning, end = first.weight.split([2 * panels.shape[2], panels.shape[2]], 1)
        begun = F.linear(left_and_middle(panels).flatten(2), beginning, first.bias)
        return cast(Tensor, self.row_module[1:](in_rows(begun, F.linear(right(panels), end))))

    def _pairs(self, rows: Tensor) -> Tensor:
        """Shape: ``(batch, 10, …)`` to ``(batch, 17, embedding)``."""
        first = cast(nn.Linear, self.pair_module[0])
        before, after = first.weight.split(rows.shape[2], 1)
        hidden = in_pairs(F.linear(rows, before, first.bias), F.linear(rows, after))
        return both_ways(self.pair_module[1:](hidden))


def _gated(module: Module, spec: str, normalised: bool) -> nn.Sequential:
    """Linear, layer norm, activation, again, and the last linear layer if there is one."""
    layers, features = nn.Sequential(), module.inputs
    for width in module.widths:
        layers.append(nn.Linear(features, width))
        if normalised:
            layers.append(nn.LayerNorm(width))
        activation = boolit.activation(spec)
        layers.append(activation)
        features = activation.out_features(width)
    if module.outputs is not None:
        layers.append(nn.Linear(features, module.outputs))
    return layers
