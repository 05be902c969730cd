"""Augmentations by name, applied to every training batch.

An augmentation takes a batch ``(runs, batch, …)`` of stored samples, the runs' keys and the step. It draws with
`boolit.lab.common.random.uniform` or `normal`, so that every run has its own random numbers.
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
from boolit.lab.common.random import normal, uniform
from boolit.lab.kernels import ONE_PIXEL, look_up

Augmentation = Callable[[Tensor, Tensor, int], Tensor]
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, their magnitudes from 0 to 1, and signs
Transformation = Literal["rotate", "shear_y", "translate_x", "translate_y"]

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


# AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019), which the paper uses on CIFAR-10 and CIFAR-100 (a:cifar): 25
# sub-policies of two operations, each with its probability and magnitude from 0 to 9.
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
LINES = [line.split() for line in POLICY.strip().splitlines()]
PROBABILITIES = torch.tensor([[float(line[1]), float(line[4])] for line in LINES])
MAGNITUDES = torch.tensor([[int(line[2]), int(line[5])] for line in LINES], dtype=torch.float64) / 9
NUMBERS = 6  # per image: mirrored, sub-policy, and twice whether to apply the operation and its sign
FILL = 128
LUMA = (19595, 38470, 7471)  # ITU-R 601-2 in 65536ths
SMOOTHED = 13  # sum of the weights of Pillow's filter SMOOTH: 5 in the middle, 1 around it


def autoaugment_cifar10(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Apply AutoAugment's policy for CIFAR-10, drawn for every image.

    An image is mirrored with probability 1/2 and then passes one of the sub-policies. The operations work on many images at
    once and equal Pillow's to the last grey level. NOTE[paper]: as in the authors' code, mirroring comes first, images are
    neither cropped nor cut out, rotations go one way only and uncovered pixels are grey; interpolation is not given and is to
    the nearest pixel, as in the original policy.

    Shape: ``(runs, batch, 3, height, width)`` bytes, unchanged.
    """
    if x.dtype != torch.uint8 or x.dim() != 5 or x.shape[2] != 3:
        rule = "autoaugment-cifar10 is for bytes of shape (3, height, width); leave training.augmentation out"
        raise UserError(f"samples of {x.dtype} and shape {tuple(x.shape[2:])}: {rule}")
    numbers = uniform(run_keys, step, (x.shape[1], NUMBERS)).flatten(0, 1)
    images = x.flatten(0, 1)
    images = torch.where(_each(numbers[:, 0] < 0.5), images.flip(-1), images)
    sub_policy = (len(LINES) * numbers[:, 1]).long()
    for place in range(2):
        chance, sign = numbers[:, 2 + 2 * place : 4 + 2 * place].unbind(1)
        applied = chance < PROBABILITIES.to(x.device)[sub_policy, place]
        magnitudes = MAGNITUDES.to(x.device)[sub_policy, place]
        signs = torch.where(sign < 0.5, -1.0, 1.0)
        names = [line[3 * place] for line in LINES]
        for name in dict.fromkeys(names):
            has_name = torch.tensor([other == name for other in names], device=x.device)
            rows = (applied & has_name[sub_policy]).nonzero().squeeze(1)
            if len(rows):
                images[rows] = OPERATIONS[name](images[rows], magnitudes[rows], signs[rows])
    return images.view(x.shape)


# Images are (n, 3, height, width) bytes in all operations, with one factor, magnitude and sign (n,) per image.


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
    return lambda images, magnitudes, signs: operation(images, 1 + 0.9 * magnitudes * signs)


def _posterize(images: Tensor, magnitudes: Tensor, _signs: Tensor) -> Tensor:
    lost_bits = (4 * magnitudes).round().long()
    return images & _each((256 - 2**lost_bits).to(torch.uint8))


def _solarize(images: Tensor, magnitudes: Tensor, _signs: Tensor) -> Tensor:
    return torch.where(images < _each(256 - 256 * magnitudes), images, images.bitwise_not())


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
    "invert": lambda images, _, __: images.bitwise_not(),
    "posterize": _posterize,
    "rotate": _move("rotate", 30.0, signed=False),
    "sharpness": _enhance(adjust_sharpness),
    "shear_y": _move("shear_y", 0.3),
    "solarize": _solarize,
    "translate_x": _move("translate_x", 150 / 331),  # of the side
    "translate_y": _move("translate_y", 150 / 331),
}
AUGMENTATIONS: dict[str, Augmentation] = {"jitter": jitter, "affine": affine, "autoaugment-cifar10": autoaugment_cifar10}
