"""Augmentations by name: what happens to every batch of every run before it is learnt from.

One takes a batch ``(runs, batch, …)`` of stored samples, the runs' keys and the step, and draws with
`boolit.lab.common.random.uniform` or `normal`, so that it is one operation for all runs and every run has its own randomness.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from boolit.lab.common.random import normal, uniform
from boolit.lab.datasets.images.autoaugment import autoaugment_cifar10

DEGREES = 10.0
SMALLEST, LARGEST = 0.8, 1.2
TRANSLATION = 0.08  # of the side
# NOTE[paper]: "shear of ±0.3" has no unit. The authors' code gives this number to torchvision, which takes degrees: so it moves
# no pixel by more than a fourteenth of one.
SHEAR = 0.3
AT_ONCE = 128  # what the coordinates of so many images take stays in a core's cache


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

    height, width = images.shape[1:]
    origins, pixels = invert_affine_transform(matrices), _pixels(height, width).to(images.device)
    border = _border(origins @ pixels[:, [0, width - 1, -width, -1]], height, width)
    origins[..., 2] += border + 0.5  # into the bordered image, where rounding down then finds the nearest pixel
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    lookup = _Lookup(images, border)
    for part, places, written in zip(*(each.split(AT_ONCE) for each in (images, origins, result)), strict=True):
        lookup(part, places, pixels, written.view(-1))
    return result


class _Lookup:
    """Finds pixels by their place in memory, for a seventh of the time of kornia's warp_affine, which makes grids of floats.

    It uses the same memory for every piece: fresh memory would cost a third more.
    """

    def __init__(self, images: Tensor, border: int) -> None:
        height, width = images.shape[1:]
        self.bordered = images.new_zeros(AT_ONCE, height + 2 * border, width + 2 * border)
        self.inside = self.bordered[:, border : border + height, border : border + width]
        step, device = self.bordered[0].numel(), images.device
        self.starts = torch.arange(0, AT_ONCE * step, step, dtype=torch.int32, device=device).unsqueeze(1)
        self.x, self.y = torch.empty(2, AT_ONCE, height * width, device=device).unbind()
        self.places = torch.empty(AT_ONCE, height * width, dtype=torch.int32, device=device)

    def __call__(self, images: Tensor, origins: Tensor, pixels: Tensor, result: Tensor) -> None:
        """Writes the pixels that ``origins`` move to.

        Shape: ``(n, height, width)``, ``(n, 2, 3)``, ``(3, pixels)`` and ``(n · pixels,)``.
        """
        n = len(images)
        self.inside[:n] = images
        x, y = (torch.mm(row, pixels, out=memory[:n]) for row, memory in zip(origins.unbind(1), (self.x, self.y), strict=True))
        places = self.places[:n].copy_(x.add_(y.floor_(), alpha=self.bordered.shape[2])).add_(self.starts[:n])
        torch.index_select(self.bordered.view(-1), 0, places.view(-1), out=result)


def _pixels(height: int, width: int) -> Tensor:
    """The x, y and 1 of every pixel.

    Shape: ``(3, pixels)``.
    """
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([x, y, torch.ones_like(x)]).flatten(1).float()


def _border(corners: Tensor, height: int, width: int) -> int:
    """How wide a border of 0 holds all that is looked up outside the images, so that nothing is compared with their sides.

    Shape: ``(n, 2, 4)``.
    """
    beyond = torch.maximum(-corners, corners - corners.new_tensor([[width - 1.0], [height - 1.0]]))
    return max(0, math.ceil(beyond.max())) + 1


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
