"""Augmentations by name, applied to every training batch.

An augmentation takes a batch ``(runs, batch, …)`` of stored samples, the runs' keys and the step. It draws with
`boolit.lab.common.random.uniform` or `normal`, so that every run has its own random numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boolit.lab.common.random import normal, uniform
from boolit.lab.datasets.images.autoaugment import autoaugment_cifar10
from boolit.lab.kernels import ONE_PIXEL, look_up

Augmentation = Callable[[Tensor, Tensor, int], Tensor]
JITTER = 0.1
DEGREES = 10.0
SMALLEST, LARGEST = 0.8, 1.2
TRANSLATION = 0.08  # of the side
# NOTE[paper]: "shear of ±0.3" has no unit. The authors' code passes the number to torchvision, which takes degrees, so it moves
# no pixel by more than a fourteenth of one.
SHEAR = 0.3


def jitter(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Add normal noise with a standard deviation of 0.1 to every input. Shape: ``(runs, batch, …)``, unchanged."""
    return x + JITTER * normal(run_keys, step, x.shape[1:])


def affine(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Apply the paper's random affine transformation of MNIST (a:mnist), drawn for every image.

    Shape: ``(runs, batch, height, width)``, unchanged, as is the dtype.
    """
    numbers = uniform(run_keys, step, (x.shape[1], 5)).flatten(0, 1)
    return warp(x.flatten(0, 1), affine_matrices(numbers, x.shape[-2], x.shape[-1])).view(x.shape)


def affine_matrices(numbers: Tensor, height: int, width: int) -> Tensor:
    """Return transformations about the center of an image: shear along x, scale, rotation, translation.

    Shape: ``(n, 5)`` numbers in [0, 1) to ``(n, 2, 3)``, from pixel coordinates (x, y, 1) to new ones.
    """
    rotation, scale, across, down, shear = (2 * numbers - 1).unbind(1)
    scale = (SMALLEST + LARGEST) / 2 + (LARGEST - SMALLEST) / 2 * scale
    angle, shear = (rotation * DEGREES).deg2rad(), (shear * SHEAR).deg2rad().tan()
    center_x, center_y = (width - 1) / 2, (height - 1) / 2
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    rows = []
    for a, b, center, moved in (
        (cosine, -sine, center_x, across * width * TRANSLATION),
        (sine, cosine, center_y, down * height * TRANSLATION),
    ):
        shift = -a * center_x - b * center_y + center + moved
        rows.append(torch.stack([a, b - a * shear, a * (shear * center_y) + shift], 1))
    return torch.stack(rows, 1)


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Transform every image by its own matrix, to the nearest pixel, with 0 outside.

    NOTE[paper]: interpolation is not mentioned; the nearest pixel is torchvision's default.

    Shape: ``(n, height, width)`` and ``(n, 2, 3)`` to ``(n, height, width)``.
    """
    (a, b, x), (c, d, y) = (row.unbind(1) for row in matrices.double().unbind(1))
    inverse = torch.stack([d, -b, b * y - d * x, -c, a, c * x - a * y], 1) / (a * d - b * c).unsqueeze(1)
    origins = inverse.view(-1, 2, 3)
    origins[..., 2] += 0.5  # rounding down then finds the nearest pixel
    return look_up(images, (origins * ONE_PIXEL).round().long())


AUGMENTATIONS: dict[str, Augmentation] = {"jitter": jitter, "affine": affine, "autoaugment-cifar10": autoaugment_cifar10}
