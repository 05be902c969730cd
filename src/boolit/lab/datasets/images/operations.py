"""Operations on many small images at once, to the last grey level as Pillow computes them on one.

kornia has most of them too, but in floats: there and back, eight images of 3 × 32 × 32 take it twice as long to equalise,
and a quarter of the pixels it sharpens are a grey level off.

Shape: images are ``(n, 3, height, width)`` bytes throughout, and each has its own factor, threshold or mask ``(n,)``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (19595, 38470, 7471)  # ITU-R 601-2 in 65536ths
SMOOTHED = 13  # what the weights of Pillow's filter SMOOTH add up to: 5 in the middle, 1 around it


def invert(images: Tensor) -> Tensor:
    """Their negatives.

    Example:
        >>> invert(torch.tensor([[[[0, 7, 255]]]], dtype=torch.uint8)).flatten().tolist()
        [255, 248, 0]
    """
    return images.bitwise_not()


def solarise(images: Tensor, thresholds: Tensor) -> Tensor:
    """Inverted where they are as bright as their threshold or brighter."""
    return torch.where(images < _each(thresholds), images, invert(images))


def posterise(images: Tensor, masks: Tensor) -> Tensor:
    """With those bits only that are set in their mask."""
    return images & _each(masks)


def auto_contrast(images: Tensor) -> Tensor:
    """Each channel spread to the full range from 0 to 255, unless it is of one colour."""
    values = images.flatten(2)
    low, high = (found.double().unsqueeze(2) for found in (values.amin(2), values.amax(2)))
    scale = torch.full_like(low, 255) / (high - low)  # a plain 255 would be multiplied with the reciprocal, which rounds twice
    levels = torch.arange(256.0, dtype=torch.float64, device=images.device)
    table = (levels * scale - low * scale).clamp(0, 255)
    return _look_up(images, torch.where(high > low, table, levels))


def equalise(images: Tensor) -> Tensor:
    """Each channel with its grey levels spread so that all are about as frequent."""
    values = images.flatten(2).long()
    counts = values.new_zeros(*values.shape[:2], 256).scatter_add_(2, values, torch.ones_like(values))
    brightest = counts.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - brightest) // 255
    table = (counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)
    return _look_up(images, torch.where(step > 0, table.clamp(max=255), torch.arange(256, device=images.device)))


def adjust_saturation(images: Tensor, factors: Tensor) -> Tensor:
    """More or less colourful: 0 is grey, 1 the original."""
    return _blend(_grey(images), images, factors)


def adjust_contrast(images: Tensor, factors: Tensor) -> Tensor:
    """With more or less contrast: 0 is the mean grey, 1 the original."""
    grey = _grey(images).flatten(1)
    mean = (2 * grey.sum(1) + grey.shape[1]) // (2 * grey.shape[1])
    return _blend(_each(mean), images, factors)


def adjust_brightness(images: Tensor, factors: Tensor) -> Tensor:
    """Brighter or darker: 0 is black, 1 the original."""
    return _blend(torch.zeros(1, device=images.device), images, factors)


def adjust_sharpness(images: Tensor, factors: Tensor) -> Tensor:
    """Sharper or softer: 0 is smoothed, 1 the original; the outermost pixels stay as they are in the smoothed image."""
    values = images.float()
    sums = F.avg_pool2d(values, 3, stride=1, divisor_override=1) + 4 * values[..., 1:-1, 1:-1]
    smooth = values.clone()
    smooth[..., 1:-1, 1:-1] = sums.mul_(2).add_(SMOOTHED).div_(2 * SMOOTHED).floor_()
    return _blend(smooth, images, factors)


def gather_pixels(images: Tensor, origins: Tensor, fill: int) -> Tensor:
    """Every pixel taken from elsewhere in its image.

    Shape: ``origins`` is ``(n, pixels)``, the place of each pixel's origin, or the number of pixels where there is none.
    """
    flat = F.pad(images.flatten(2), (0, 1), value=fill)
    return flat.gather(2, origins.unsqueeze(1).expand(-1, flat.shape[1], -1)).view_as(images)


def _each(values: Tensor) -> Tensor:
    """Numbers, one per image, to be combined with images."""
    return values.view(-1, 1, 1, 1)


def _grey(images: Tensor) -> Tensor:
    """Shape: ``(n, 1, height, width)``, int32."""
    weights = torch.tensor(LUMA, dtype=torch.int32, device=images.device).view(3, 1, 1)
    return ((images * weights).sum(1, keepdim=True, dtype=torch.int32) + 2**15) >> 16


def _blend(zero: Tensor, one: Tensor, factors: Tensor) -> Tensor:
    """From the image that a factor of 0 stands for, through the one of 1 and beyond; fractions are cut off."""
    start = zero.float()
    return (one - start).mul_(_each(factors.float())).add_(start).clamp_(0, 255).to(torch.uint8)


def _look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Shape: ``tables`` is ``(n, 3, 256)``; fractions are cut off."""
    return tables.to(torch.uint8).gather(2, images.flatten(2).long()).view_as(images)
