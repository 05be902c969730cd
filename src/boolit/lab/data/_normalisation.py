"""How the bytes of colour pictures become the numbers a network reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import torch

from boolit.lab.data._dataset import Encode

Normalisation: TypeAlias = Literal["half", "imagenet"]
# Mean and standard deviation of red, green and blue, as fractions of 255. Those of ImageNet are the ones everybody's networks
# were trained with.
SCALES: Mapping[Normalisation, tuple[tuple[float, ...], tuple[float, ...]]] = MappingProxyType(
    {"half": ((0.5,) * 3, (0.5,) * 3), "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}
)


def normaliser(kind: Normalisation) -> Encode:
    """What gives pixels of 0 … 255 the usual scale.

    Shape: what is returned takes ``(…, 3, height, width)`` and keeps it.

    Example:
        >>> normaliser("half")(torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1)).flatten()
        tensor([-1.0000,  1.0000, -0.6000])
    """
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in SCALES[kind])
    scale, shift = 1 / (255 * deviation), -mean / deviation
    return lambda x: torch.addcmul(shift, x.float(), scale)
