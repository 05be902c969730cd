"""An activation, a dataset, an optimizer and a metric of one's own, for study.toml."""

from typing import Literal

import torch
from torch import Tensor, nn

from boolit.lab import (
    Dataset,
    Source,
    Split,
    register_dataset,
    register_metric,
    register_optimizer,
)
from boolit.nn import Custom, register


class ScaledXnor(nn.Module):
    """A smooth XNOR of pairs with a learned scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        a, b = x[..., 0::2], x[..., 1::2]
        return self.scale * a * torch.tanh(b)


register("scaled_xnor", lambda dim: Custom(ScaledXnor(), dim, name="scaled_xnor"))


@register_dataset
class Checkers(Source):
    """Points of a checkerboard, in black and white."""

    name: Literal["checkers"] = "checkers"
    samples: int = 1000
    fields: int = 3

    def load(self) -> Dataset:
        x = (
            2
            * torch.rand(
                2 * self.samples, 2, generator=torch.Generator().manual_seed(0)
            )
            - 1
        )
        y = ((x + 1) * self.fields / 2).floor().sum(1, keepdim=True) % 2
        halves = {"train": slice(None, self.samples), "test": slice(self.samples, None)}
        return Dataset(
            {name: Split(x[part], y[part]) for name, part in halves.items()},
            task="binary",
            outputs=1,
        )


@register_optimizer("mean", sharpness=1.0)
def lion(values, gradient, state, rate, hyper, _number):
    """Follow the sign of an average gradient, smooth for a small sharpness."""
    direction = state["mean"].lerp(gradient, 1 - hyper["beta1"])
    direction = torch.tanh(direction * 1e6 * hyper["sharpness"])
    values.sub_(rate * (direction + hyper["weight_decay"] * values))
    state["mean"].lerp_(gradient, 1 - hyper["beta2"])


@register_metric("max", "binary", percent=True)
def balanced(outputs, targets):
    """Return the mean of the hit rates on both colors."""
    hits, black = (outputs > 0) == (targets > 0.5), targets > 0.5
    rates = [
        (hits & color).sum((1, 2)) / color.sum((1, 2)) for color in (black, ~black)
    ]
    return (rates[0] + rates[1]) / 2
