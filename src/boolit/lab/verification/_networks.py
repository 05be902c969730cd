"""Multi-layer perceptrons built as torch modules: the count of what is really there, beside the formula."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

import boolit
from boolit.nn.width import count_parameters


def built_parameters(inputs: int, widths: Sequence[int], outputs: int, spec: str, batch_norm: bool = False) -> int:
    """Parameters of Linear [BatchNorm] activation … Linear, built and run once, which its shapes must survive.

    Example:
        >>> built_parameters(784, [250, 250], 10, "relu", batch_norm=True)
        262510
    """
    layers: list[nn.Module] = []
    features = inputs
    with torch.device("meta"):  # neither memory nor random numbers are spent on initial weights
        for width in widths:
            activation = boolit.activation(spec)
            layers += [nn.Linear(features, width), *([nn.BatchNorm1d(width)] if batch_norm else []), activation]
            features = activation.out_features(width)
        layers.append(nn.Linear(features, outputs))
    network = nn.Sequential(*layers).to_empty(device="cpu").eval()
    with torch.inference_mode():
        network(torch.zeros(2, inputs))
    return count_parameters(network)
