"""Augmentations by name, applied to every training batch.

An augmentation takes a batch ``(runs, batch, …)`` of stored samples, the runs' keys and the step. It draws with
`boolit.lab.common.random.uniform` or `normal`, so that every run has its own random numbers.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import normal, uniform
from boolit.lab.kernels import ONE_PIXEL, look_up

Augmentation = Callable[[Tensor, Tensor, int], Tensor]
Operation = Callable[[Image.Image, float, float], Image.Image]  # an image, a magnitude from 0 to 1, and a sign

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

    Shape: ``(n, 5)`` random numbers in [0, 1) to ``(n, 2, 3)`` matrices, which map pixel coordinates (x, y, 1) to new ones.
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


# AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019), which the paper uses on CIFAR-10 and CIFAR-100 (a:cifar): 25
# sub-policies of two operations, each with its probability and magnitude from 0 to 9.
_, *POLICY = csv.reader(Path(__file__).with_name("autoaugment.csv").read_text("utf-8").splitlines())
PROBABILITIES = torch.tensor([[float(line[1]), float(line[4])] for line in POLICY]).tolist()  # rounded like the numbers drawn
NUMBERS = 6  # per image: mirrored, sub-policy, and twice whether to apply the operation and its sign
FILL = (128, 128, 128)


def autoaugment_cifar10(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Apply AutoAugment's policy for CIFAR-10, drawn for every image.

    An image is mirrored with probability 1/2 and then passes one of the sub-policies. NOTE[paper]: as in the authors' code,
    mirroring comes first, images are neither cropped nor cut out, rotations go one way only and uncovered pixels are gray;
    interpolation is not given and is to the nearest pixel, as in the original policy.

    Shape: ``(runs, batch, 3, height, width)`` bytes, unchanged.
    """
    if x.dtype != torch.uint8 or x.dim() != 5 or x.shape[2] != 3:
        rule = "autoaugment-cifar10 is for bytes of shape (3, height, width); leave training.augmentation out"
        raise UserError(f"samples of {x.dtype} and shape {tuple(x.shape[2:])}: {rule}")
    numbers = uniform(run_keys, step, (x.shape[1], NUMBERS)).flatten(0, 1)
    sub_policies = (len(POLICY) * numbers[:, 1]).long().tolist()
    images = x.flatten(0, 1).permute(0, 2, 3, 1).cpu().numpy()
    augmented = [_augment(*each) for each in zip(images, sub_policies, numbers.tolist(), strict=True)]
    return torch.from_numpy(np.stack(augmented)).permute(0, 3, 1, 2).to(x.device).reshape(x.shape)


def _augment(pixels: NDArray[np.uint8], sub_policy: int, numbers: Sequence[float]) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels[:, ::-1] if numbers[0] < 0.5 else pixels)
    for place in range(2):
        chance, sign = numbers[2 + 2 * place : 4 + 2 * place]
        if chance < PROBABILITIES[sub_policy][place]:
            name, _, magnitude = POLICY[sub_policy][3 * place : 3 * place + 3]
            image = OPERATIONS[name](image, int(magnitude) / 9, -1.0 if sign < 0.5 else 1.0)
    return np.asarray(image)


def _enhance(kind: Callable[[Image.Image], Any]) -> Operation:
    return lambda image, magnitude, sign: kind(image).enhance(1 + 0.9 * magnitude * sign)


def _move(image: Image.Image, x: float = 0, y: float = 0, shear: float = 0) -> Image.Image:
    coefficients = (1, 0, x * image.width, shear, 1, y * image.height)
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, fillcolor=FILL)


TRANSLATED = 150 / 331  # of the side
OPERATIONS: dict[str, Operation] = {
    "auto_contrast": lambda image, _, __: ImageOps.autocontrast(image),
    "brightness": _enhance(ImageEnhance.Brightness),
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "equalize": lambda image, _, __: ImageOps.equalize(image),
    "invert": lambda image, _, __: ImageOps.invert(image),
    "posterize": lambda image, magnitude, _: ImageOps.posterize(image, 8 - round(4 * magnitude)),
    "rotate": lambda image, magnitude, _: image.rotate(30 * magnitude, fillcolor=FILL),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear_y": lambda image, magnitude, sign: _move(image, shear=0.3 * magnitude * sign),
    "solarize": lambda image, magnitude, _: ImageOps.solarize(image, math.ceil(256 - 256 * magnitude)),
    "translate_x": lambda image, magnitude, sign: _move(image, x=TRANSLATED * magnitude * sign),
    "translate_y": lambda image, magnitude, sign: _move(image, y=TRANSLATED * magnitude * sign),
}
