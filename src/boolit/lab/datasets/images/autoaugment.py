"""AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019), which the paper uses on CIFAR-10 and CIFAR-100 (a:cifar).

An image is mirrored with probability 1/2 and then goes through one of 25 sub-policies of two operations each. Images are
grouped by operation. NOTE[paper]: as in the authors' code, the mirror image comes first, images are neither cropped nor cut
out, rotations go one way only and uncovered pixels are grey; interpolation is not said and is to the nearest pixel, as in the
policy's original.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import uniform
from boolit.lab.datasets.images import operations

FILL = 128
LEVELS = 10  # magnitudes 0 … 9
SHEAR, TRANSLATION, DEGREES, FACTOR = 0.3, 150 / 331, 30.0, 0.9  # at magnitude 9; a translation is a share of the side
FEWEST_BITS, BITS = 4, 8
CHANCES = 6  # of an image: mirrored, which sub-policy, and twice whether to apply the operation and its sign

# Operation, probability and magnitude, two per line.
POLICY = """
invert        0.1 7  contrast      0.2 6
rotate        0.7 2  translate_x   0.3 9
sharpness     0.8 1  sharpness     0.9 3
shear_y       0.5 8  translate_y   0.7 9
auto_contrast 0.5 8  equalise      0.9 2
shear_y       0.2 7  posterise     0.3 7
colour        0.4 3  brightness    0.6 7
sharpness     0.3 9  brightness    0.7 9
equalise      0.6 5  equalise      0.5 1
contrast      0.6 7  sharpness     0.6 5
colour        0.7 7  translate_x   0.5 8
equalise      0.3 7  auto_contrast 0.4 8
translate_y   0.4 3  sharpness     0.2 6
brightness    0.9 6  colour        0.2 8
solarise      0.5 2  invert        0.0 3
equalise      0.2 0  auto_contrast 0.6 0
equalise      0.2 8  equalise      0.6 4
colour        0.9 9  equalise      0.6 6
auto_contrast 0.8 4  solarise      0.2 8
brightness    0.1 3  colour        0.7 0
solarise      0.4 5  auto_contrast 0.9 3
translate_y   0.9 9  translate_y   0.7 9
auto_contrast 0.9 2  solarise      0.8 3
equalise      0.8 8  invert        0.1 3
translate_y   0.7 9  auto_contrast 0.9 1
"""
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, their magnitudes from 0 to 1, and signs
Transformation = Literal["rotate", "shear_y", "translate_x", "translate_y"]


def autoaugment_cifar10(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """AutoAugment's policy for CIFAR-10, drawn anew for every image.

    Shape: ``(runs, batch, 3, height, width)`` bytes, unchanged.
    """
    if x.dtype != torch.uint8 or x.dim() != 5 or x.shape[2] != 3:
        rule = "autoaugment-cifar10 is for bytes of shape (3, height, width); leave training.augmentation out"
        raise UserError(f"samples of {x.dtype} and shape {tuple(x.shape[2:])}: {rule}")
    chances = uniform(run_keys, step, (x.shape[1], CHANCES)).flatten(0, 1)
    mirrored = (chances[:, 0] < 0.5).view(-1, 1, 1, 1)
    images = x.flatten(0, 1)
    images = torch.where(mirrored, images.flip(-1), images)
    sub_policy = (len(_policy()[0]) * chances[:, 1]).long()
    for place in range(2):
        apply(images, sub_policy, place, *chances[:, 2 + 2 * place : 4 + 2 * place].unbind(1))
    return images.view(x.shape)


def apply(images: Tensor, sub_policy: Tensor, place: int, whether: Tensor, sign: Tensor) -> None:
    """The first or second operation of every image's sub-policy, in place, where its chance ``whether`` is low enough.

    Shape: ``(n, 3, height, width)``, then ``(n,)`` each.
    """
    operations_of, *numbers = _policy()
    probabilities, magnitudes = (values.to(images.device) for values in numbers)
    names = [line[place] for line in operations_of]
    applied = whether < probabilities[sub_policy, place]
    signs = torch.where(sign < 0.5, -1.0, 1.0)
    for name in dict.fromkeys(names):
        own = torch.tensor([other == name for other in names], device=images.device)
        rows = (applied & own[sub_policy]).nonzero().squeeze(1)
        if len(rows):
            images[rows] = OPERATIONS[name](images[rows], magnitudes[sub_policy[rows], place], signs[rows])


@lru_cache(maxsize=1)
def _policy() -> tuple[list[tuple[str, str]], Tensor, Tensor]:
    """The names of each sub-policy's operations, their probabilities, and magnitudes as a share of the greatest.

    Shape: ``(25, 2)`` each.
    """
    lines = [line.split() for line in POLICY.strip().splitlines()]
    probabilities = torch.tensor([[float(line[1]), float(line[4])] for line in lines])
    magnitudes = torch.tensor([[int(line[2]), int(line[5])] for line in lines], dtype=torch.float64)
    return [(line[0], line[3]) for line in lines], probabilities, magnitudes / (LEVELS - 1)


def _enhance(operation: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    return lambda images, magnitudes, signs: operation(images, 1 + FACTOR * magnitudes * signs)


def _solarise(images: Tensor, magnitudes: Tensor, signs: Tensor) -> Tensor:  # noqa: ARG001 (what others go by)
    return operations.solarise(images, 256 - 256 * magnitudes)


def _posterise(images: Tensor, magnitudes: Tensor, signs: Tensor) -> Tensor:  # noqa: ARG001 (what others go by)
    lost = ((BITS - FEWEST_BITS) * magnitudes).round().long()
    return operations.posterise(images, (256 - 2**lost).to(torch.uint8))


def _move(kind: Transformation, greatest: float, signed: bool = True) -> Operation:
    """An affine transformation: the policy has so few of them that each is made once, as the origins of all pixels."""

    def operation(images: Tensor, magnitudes: Tensor, signs: Tensor) -> Tensor:
        amounts = (greatest * magnitudes * signs if signed else greatest * magnitudes).tolist()
        height, width = images.shape[2:]
        places = torch.stack([_origins(kind, amount, height, width) for amount in amounts]).to(images.device)
        return operations.gather_pixels(images, places, FILL)

    return operation


@lru_cache(maxsize=128)
def _origins(kind: Transformation, amount: float, height: int, width: int) -> Tensor:
    """Where each pixel comes from: the pixel that its middle falls into, or the number of pixels if that is outside.

    Shape: ``(pixels,)``, int64.
    """
    y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) + 0.5 for side in (height, width)), indexing="ij")
    if kind == "translate_x":
        x = x + width * amount
    elif kind == "translate_y":
        y = y + height * amount
    elif kind == "shear_y":
        y = y + amount * x
    else:
        x, y = _rotate(x - width / 2, y - height / 2, math.radians(amount))
        x, y = x + width / 2, y + height / 2
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return torch.where(inside, y.floor() * width + x.floor(), height * width).long().flatten()


def _rotate(x: Tensor, y: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    return math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y


OPERATIONS: dict[str, Operation] = {
    "auto_contrast": lambda images, _, __: operations.auto_contrast(images),
    "brightness": _enhance(operations.adjust_brightness),
    "colour": _enhance(operations.adjust_saturation),
    "contrast": _enhance(operations.adjust_contrast),
    "equalise": lambda images, _, __: operations.equalise(images),
    "invert": lambda images, _, __: operations.invert(images),
    "posterise": _posterise,
    "rotate": _move("rotate", DEGREES, signed=False),
    "sharpness": _enhance(operations.adjust_sharpness),
    "shear_y": _move("shear_y", SHEAR),
    "solarise": _solarise,
    "translate_x": _move("translate_x", TRANSLATION),
    "translate_y": _move("translate_y", TRANSLATION),
}
