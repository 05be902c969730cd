"""Augmentations by name: what happens to every batch of every run before it is learnt from.

One takes a batch ``(runs, batch, …)`` of stored samples, the runs' keys and the step, and draws with
`boolit.lab.common.random.uniform` or `normal`, so that it is one operation for all runs and every run has its own randomness.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from boolit.lab.common.random import normal, uniform
from boolit.lab.datasets.images.autoaugment import autoaugment_cifar10
from boolit.lab.kernels import ONE_PIXEL, look_up

DEGREES = 10.0
SMALLEST, LARGEST = 0.8, 1.2
TRANSLATION = 0.08  # of the side
# NOTE[paper]: "shear of ±0.3" has no unit. The authors' code gives this number to torchvision, which takes degrees: so it moves
# no pixel by more than a fourteenth of one.
SHEAR = 0.3


def affine_matrices(chances: Tensor, height: int, width: int) -> Tensor:
    """Transformations about the centre of an image, from numbers in [0, 1): rotation, scale, two translations, shear along x.

    Shape: ``(n, 5)`` to ``(n, 2, 3)``, from pixel coordinates (x, y, 1) to new ones.
    """
    from kornia.geometry.transform import get_affine_matrix2d

    rotation, scale, across, down, shear = (2 * chances - 1).unbind(1)
    return get_affine_matrix2d(
        translations=torch.stack([across * width, down * height], 1) * TRANSLATION,
        center=torch.tensor([[(width - 1) / 2, (height - 1) / 2]], device=chances.device).expand(len(chances), 2),
        scale=((SMALLEST + LARGEST) / 2 + (LARGEST - SMALLEST) / 2 * scale).unsqueeze(1).expand(-1, 2),
        angle=rotation * DEGREES,
        sx=(shear * SHEAR).deg2rad(),
    )[:, :2]


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Every image transformed by its own matrix, with 0 where nothing was; a pixel is the nearest one of the original.

    NOTE[paper]: interpolation is not mentioned; the nearest pixel is torchvision's default, so the authors', and keeps bytes.

    Shape: ``(n, height, width)`` and ``(n, 2, 3)`` to ``(n, height, width)``.
    """
    from kornia.geometry.transform import invert_affine_transform

    origins = invert_affine_transform(matrices.double())
    origins[..., 2] += 0.5  # so that rounding down finds the nearest pixel
    return look_up(images, (origins * ONE_PIXEL).round().long())


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
    return warp(x.flatten(0, 1), affine_matrices(chances, x.shape[-2], x.shape[-1])).view(x.shape)


AUGMENTATIONS: dict[str, Augmentation] = {"jitter": jitter, "affine": affine, "autoaugment-cifar10": autoaugment_cifar10}
