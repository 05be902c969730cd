"""Augmentations: what happens to every batch of every run before it is learnt from, by name.

One takes a batch ``(runs, batch, …)`` of stored samples, the runs' keys and the step, and draws with
`boolit.lab.randomness.uniform` or `normal`, so that it is one operation for all runs and every run has its own randomness.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from boolit.lab.data._affine import affine_matrices, warped
from boolit.lab.data._autoaugment import autoaugment_cifar10
from boolit.lab.randomness import normal, uniform

Augmentation = Callable[[Tensor, Tensor, int], Tensor]
JITTER = 0.1


def jitter(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Normal noise with a standard deviation of 0.1 on every input.

    Shape: ``(runs, batch, …)``, unchanged.
    """
    return x + JITTER * normal(run_keys, step, x.shape[1:])


def affine(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """The paper's random affine transformation of MNIST's images (a:mnist), another one for every image.

    Shape: ``(runs, batch, height, width)``, unchanged, as is the type.
    """
    chances = uniform(run_keys, step, (x.shape[1], 5)).flatten(0, 1)
    return warped(x.flatten(0, 1), affine_matrices(chances, x.shape[-2], x.shape[-1])).view(x.shape)


AUGMENTATIONS: dict[str, Augmentation] = {"jitter": jitter, "affine": affine, "autoaugment-cifar10": autoaugment_cifar10}
