"""AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019), which the paper uses on CIFAR-10 and CIFAR-100 (a:cifar).

An image is mirrored with probability 1/2 and then passes one of 25 sub-policies of two operations. NOTE[paper]: as in the
authors' code, mirroring comes first, images are neither cropped nor cut out, rotations go one way only and uncovered pixels are
grey; interpolation is not given and is to the nearest pixel, as in the original policy.

The operations work on many images at once and equal Pillow's to the last grey level. Images are ``(n, 3, height, width)`` bytes
throughout, with one factor, threshold or mask ``(n,)`` per image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import uniform

FILL = 128
LEVELS = 10  # magnitudes 0 … 9
SHEAR, TRANSLATION, DEGREES, FACTOR = 0.3, 150 / 331, 30.0, 0.9  # at magnitude 9; a translation is a share of the side
FEWEST_BITS, BITS = 4, 8
NUMBERS = 6  # per image: mirrored, sub-policy, and twice whether to apply the operation and its sign
LUMA = (19595, 38470, 7471)  # ITU-R 601-2 in 65536ths
SMOOTHED = 13  # sum of the weights of Pillow's filter SMOOTH: 5 in the middle, 1 around it

# Operation, probability and magnitude, two per line.
POLICY = """
invert        0.1 7  contrast      0.2 6
rotate        0.7 2  translate_x   0.3 9
sharpness     0.8 1  sharpness     0.9 3
shear_y       0.5 8  translate_y   0.7 9
auto_contrast 0.5 8  equalize      0.9 2
shear_y       0.2 7  posterize     0.3 7
color         0.4 3  brightness    0.6 7
sharpness     0.3 9  brightness    0.7 9
equalize      0.6 5  equalize      0.5 1
contrast      0.6 7  sharpness     0.6 5
color         0.7 7  translate_x   0.5 8
equalize      0.3 7  auto_contrast 0.4 8
translate_y   0.4 3  sharpness     0.2 6
brightness    0.9 6  color         0.2 8
solarize      0.5 2  invert        0.0 3
equalize      0.2 0  auto_contrast 0.6 0
equalize      0.2 8  equalize      0.6 4
color         0.9 9  equalize      0.6 6
auto_contrast 0.8 4  solarize      0.2 8
brightness    0.1 3  color         0.7 0
solarize      0.4 5  auto_contrast 0.9 3
translate_y   0.9 9  translate_y   0.7 9
auto_contrast 0.9 2  solarize      0.8 3
equalize      0.8 8  invert        0.1 3
translate_y   0.7 9  auto_contrast 0.9 1
"""
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, their magnitudes from 0 to 1, and signs
Transformation = Literal["rotate", "shear_y", "translate_x", "translate_y"]


def autoaugment_cifar10(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Apply AutoAugment's policy for CIFAR-10, drawn for every image.

    Shape: ``(runs, batch, 3, height, width)`` bytes, unchanged.
    """
    if x.dtype != torch.uint8 or x.dim() != 5 or x.shape[2] != 3:
        rule = "autoaugment-cifar10 is for bytes of shape (3, height, width); leave training.augmentation out"
        raise UserError(f"samples of {x.dtype} and shape {tuple(x.shape[2:])}: {rule}")
    numbers = uniform(run_keys, step, (x.shape[1], NUMBERS)).flatten(0, 1)
    images = x.flatten(0, 1)
    images = torch.where((numbers[:, 0] < 0.5).view(-1, 1, 1, 1), images.flip(-1), images)
    sub_policy = (len(_policy()[0]) * numbers[:, 1]).long()
    for place in range(2):
        apply(images, sub_policy, place, *numbers[:, 2 + 2 * place : 4 + 2 * place].unbind(1))
    return images.view(x.shape)


def apply(images: Tensor, sub_policy: Tensor, place: int, chance: Tensor, sign: Tensor) -> None:
    """Apply the first or second operation of every image's sub-policy in place, where ``chance`` is low enough.

    Shape: ``(n, 3, height, width)``, then ``(n,)`` each.
    """
    lines, *tables = _policy()
    probabilities, magnitudes = (values.to(images.device) for values in tables)
    names = [line[place] for line in lines]
    applied = chance < probabilities[sub_policy, place]
    signs = torch.where(sign < 0.5, -1.0, 1.0)
    for name in dict.fromkeys(names):
        has_name = torch.tensor([other == name for other in names], device=images.device)
        rows = (applied & has_name[sub_policy]).nonzero().squeeze(1)
        if len(rows):
            images[rows] = OPERATIONS[name](images[rows], magnitudes[sub_policy[rows], place], signs[rows])


@lru_cache(maxsize=1)
def _policy() -> tuple[list[tuple[str, str]], Tensor, Tensor]:
    """Return the operations of each sub-policy, their probabilities, and magnitudes as a share of the greatest."""
    lines = [line.split() for line in POLICY.strip().splitlines()]
    probabilities = torch.tensor([[float(line[1]), float(line[4])] for line in lines])
    magnitudes = torch.tensor([[int(line[2]), int(line[5])] for line in lines], dtype=torch.float64)
    return [(line[0], line[3]) for line in lines], probabilities, magnitudes / (LEVELS - 1)


def invert(images: Tensor) -> Tensor:
    """Return the negatives."""
    return images.bitwise_not()


def solarize(images: Tensor, thresholds: Tensor) -> Tensor:
    """Invert pixels at or above the threshold."""
    return torch.where(images < _each(thresholds), images, invert(images))


def posterize(images: Tensor, masks: Tensor) -> Tensor:
    """Keep the bits that are set in the mask."""
    return images & _each(masks)


def auto_contrast(images: Tensor) -> Tensor:
    """Spread each channel to the full range from 0 to 255, unless it is constant."""
    values = images.flatten(2)
    low, high = (limit.double().unsqueeze(2) for limit in (values.amin(2), values.amax(2)))
    scale = torch.full_like(low, 255) / (high - low)  # a scalar 255 would be multiplied by the reciprocal, which rounds twice
    levels = torch.arange(256.0, dtype=torch.float64, device=images.device)
    table = (levels * scale - low * scale).clamp(0, 255)
    return _look_up(images, torch.where(high > low, table, levels))


def equalize(images: Tensor) -> Tensor:
    """Spread the grey levels of each channel so that they are about equally frequent."""
    values = images.flatten(2).long()
    counts = values.new_zeros(*values.shape[:2], 256).scatter_add_(2, values, torch.ones_like(values))
    brightest = counts.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - brightest) // 255
    table = (counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)
    return _look_up(images, torch.where(step > 0, table.clamp(max=255), torch.arange(256, device=images.device)))


def adjust_saturation(images: Tensor, factors: Tensor) -> Tensor:
    """Change the saturation: 0 is grey, 1 the original."""
    return _blend(_grey(images), images, factors)


def adjust_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """Change the contrast: 0 is the mean grey, 1 the original."""
    grey = _grey(images).flatten(1)
    mean = (2 * grey.sum(1) + grey.shape[1]) // (2 * grey.shape[1])
    return _blend(_each(mean), images, factors)


def adjust_brightness(images: Tensor, factors: Tensor) -> Tensor:
    """Change the brightness: 0 is black, 1 the original."""
    return _blend(torch.zeros(1, device=images.device), images, factors)


def adjust_sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """Change the sharpness: 0 is smoothed, 1 the original; smoothing leaves the outermost pixels unchanged."""
    values = images.float()
    sums = F.avg_pool2d(values, 3, stride=1, divisor_override=1) + 4 * values[..., 1:-1, 1:-1]
    smooth = values.clone()
    smooth[..., 1:-1, 1:-1] = sums.mul_(2).add_(SMOOTHED).div_(2 * SMOOTHED).floor_()
    return _blend(smooth, images, factors)


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _grey(images: Tensor) -> Tensor:
    weights = torch.tensor(LUMA, dtype=torch.int32, device=images.device).view(3, 1, 1)
    return ((images * weights).sum(1, keepdim=True, dtype=torch.int32) + 2**15) >> 16


def _blend(zero: Tensor, one: Tensor, factors: Tensor) -> Tensor:
    """Interpolate or extrapolate between the images for factors 0 and 1, truncated to bytes."""
    start = zero.float()
    return (one - start).mul_(_each(factors.float())).add_(start).clamp_(0, 255).to(torch.uint8)


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    return tables.to(torch.uint8).gather(2, images.flatten(2).long()).view_as(images)


def _enhance(operation: Callable[[Tensor, Tensor], Tensor]) -> Operation:
    return lambda images, magnitudes, signs: operation(images, 1 + FACTOR * magnitudes * signs)


def _posterize(images: Tensor, magnitudes: Tensor, _signs: Tensor) -> Tensor:
    lost = ((BITS - FEWEST_BITS) * magnitudes).round().long()
    return posterize(images, (256 - 2**lost).to(torch.uint8))


def _move(kind: Transformation, greatest: float, signed: bool = True) -> Operation:
    def operation(images: Tensor, magnitudes: Tensor, signs: Tensor) -> Tensor:
        amounts = (greatest * magnitudes * signs if signed else greatest * magnitudes).tolist()
        origins = torch.stack([_origins(kind, amount, *images.shape[2:]) for amount in amounts]).to(images.device)
        flat = F.pad(images.flatten(2), (0, 1), value=FILL)
        return flat.gather(2, origins.unsqueeze(1).expand(-1, flat.shape[1], -1)).view_as(images)

    return operation


@lru_cache(maxsize=128)
def _origins(kind: Transformation, amount: float, height: int, width: int) -> Tensor:
    """Return the number of the pixel that each pixel comes from, or the number of pixels if that is outside.

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
        cosine, sine = math.cos(math.radians(amount)), math.sin(math.radians(amount))
        right, down = x - width / 2, y - height / 2
        x, y = cosine * right - sine * down + width / 2, sine * right + cosine * down + height / 2
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return torch.where(inside, y.floor() * width + x.floor(), height * width).long().flatten()


OPERATIONS: dict[str, Operation] = {
    "auto_contrast": lambda images, _, __: auto_contrast(images),
    "brightness": _enhance(adjust_brightness),
    "color": _enhance(adjust_saturation),
    "contrast": _enhance(adjust_contrast),
    "equalize": lambda images, _, __: equalize(images),
    "invert": lambda images, _, __: invert(images),
    "posterize": _posterize,
    "rotate": _move("rotate", DEGREES, signed=False),
    "sharpness": _enhance(adjust_sharpness),
    "shear_y": _move("shear_y", SHEAR),
    "solarize": lambda images, magnitudes, _: solarize(images, 256 - 256 * magnitudes),
    "translate_x": _move("translate_x", TRANSLATION),
    "translate_y": _move("translate_y", TRANSLATION),
}
