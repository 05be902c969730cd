"""Heads on the features of a frozen encoder: two hidden layers, or a single linear layer (a:transfer)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import boolit
from boolit.lab.errors import UserError
from boolit.lab.models import register
from boolit.lab.models._family import Family, Stacked
from boolit.lab.models.mlp import Mlp
from boolit.nn import Activation

# tab:transfer-nparam-big: pre-activation widths by outputs per input of an activation, beside the 512 of 1→1.
NOMINAL, MATCHED = 512, {Fraction(1, 2): 650, Fraction(3, 2): 438}
LINEAR = "identity"
PLAIN = Mlp.model_validate({})


@register
class Head(Family):
    """Multi-layer perceptrons without normalisation; ``identity`` stands for one linear layer, without hidden ones.

    With ``sizes = "matched"`` the widths of a study are those of 1→1 activations, and others have the paper's, which make heads
    for 100 classes about equally large; where the paper has none, those that make them so for the classes there are.
    """

    name: Literal["head"] = "head"
    sizes: Literal["equal", "matched"] = "equal"

    def hidden(self, size: int, depth: int) -> list[int]:
        return [size] * depth

    def adapted(self, widths: list[int], inputs: Sequence[int], outputs: int, activation: Activation) -> list[int]:
        factor = activation.feature_factor
        if activation.spec == LINEAR:
            return []
        if self.sizes == "equal" or factor == 1:
            return widths
        if set(widths) == {NOMINAL} and factor in MATCHED:
            return [MATCHED[factor]] * len(widths)
        pointwise = self.parameters(inputs, outputs, widths, boolit.activation("relu"))
        return super().fitted(pointwise, len(widths), inputs, outputs, activation)

    def fitted(self, budget: int, depth: int, inputs: Sequence[int], outputs: int, activation: Activation) -> list[int]:
        if activation.spec == LINEAR:
            raise UserError(f"a budget of {budget}: {LINEAR} stands for one linear layer, of one size; use sweep.width")
        return super().fitted(budget, depth, inputs, outputs, activation)

    def parameters(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        return PLAIN.parameters(inputs, outputs, widths, activation)

    def kept(self, inputs: Sequence[int], outputs: int, widths: Sequence[int], activation: Activation) -> int:
        return PLAIN.kept(inputs, outputs, widths, activation)

    def build(self, runs: int, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str) -> Stacked:
        return PLAIN.build(runs, inputs, outputs, widths, spec)
