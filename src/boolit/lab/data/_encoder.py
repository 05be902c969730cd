"""A frozen ResNet-18 that turns pictures into features, its batch norms refreshed on new pictures (a:transfer)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn

from boolit.lab.data._normalisation import normaliser
from boolit.lab.data.weights import resnet18_weights
from boolit.lab.errors import UserError
from boolit.lab.models.resnet18 import Resnet18, folded

STATISTICS = ("running_mean", "running_var")
Statistics: TypeAlias = dict[str, Tensor]


def encoder(weights: Path | None) -> Resnet18:
    """The network with the published weights, or those of a file."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that are replaced at once
        network = Resnet18()
    network.load_state_dict(resnet18_weights(weights))
    return network.eval().requires_grad_(False)


def batch_statistics(network: Resnet18, pictures: Tensor) -> Statistics:
    """Mean and variance of what enters every batch norm, on one batch that is normalised by its own.

    Shape: ``(n, 3, size, size)`` bytes.
    """
    own = copy.deepcopy(network).train()
    for layer in own.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # after one batch, its statistics
    with torch.no_grad():
        own(_read(pictures))
    return {name: values for name, values in own.state_dict().items() if name.endswith(STATISTICS)}


def refresh(network: Resnet18, found: Iterable[Statistics]) -> Statistics:
    """Replaces the statistics of all batch norms by their mean over some batches, and returns it; the weights stay.

    NOTE[paper]: "one epoch worth of inputs" does not say how batches are weighted. All count alike here; with torch's default,
    which is a fading memory, the last twenty would decide, and a small dataset would leave a share of ImageNet's statistics.
    """
    sums: Statistics = {}
    batches = 0
    for statistics in found:
        sums = {name: sums.get(name, 0) + values.double() for name, values in statistics.items()}
        batches += 1
    means = {name: (values / batches).float() for name, values in sums.items()}
    network.load_state_dict(means, strict=False)
    return means


class Features:
    """A network's features of pictures, as float16.

    Its steps of 0.05 % are far below what two views of a picture differ by (on CIFAR-10 by 80 % of their length), its range far
    above the features (25 at most there), and half the bytes are read in every step.

    Shape: ``(n, 3, size, size)`` bytes to ``(n, 512)``.
    """

    def __init__(self, network: Resnet18) -> None:
        self._network = folded(network)

    def __call__(self, pictures: Tensor) -> Tensor:
        with torch.no_grad():
            features: Tensor = self._network(_read(pictures)).half()
        if not bool(features.isfinite().all()):
            raise UserError("the encoder's features of some pictures are no finite numbers in float16; use other weights")
        return features


def _read(pictures: Tensor) -> Tensor:
    return normaliser("imagenet")(pictures).contiguous(memory_format=torch.channels_last)
