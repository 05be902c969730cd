"""Normalization of color images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import torch

from boolit.lab.common.devices import DeviceCopies
from boolit.lab.datasets.base import Encode

Normalization: TypeAlias = Literal["half", "imagenet"]
# Mean and standard deviation of red, green and blue, as fractions of 255.
SCALES: Mapping[Normalization, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "half": ((0.5,) * 3, (0.5,) * 3),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def normalizer(kind: Normalization) -> Encode:
    """Return an encoding of bytes ``(…, 3, height, width)`` with the mean and standard deviation of ``kind``."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in SCALES[kind])
    scale, shift = DeviceCopies(1 / (255 * deviation)), DeviceCopies(-mean / deviation)
    return lambda x: torch.addcmul(shift.on(x.device), x.float(), scale.on(x.device))
