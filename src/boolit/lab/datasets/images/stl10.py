"""STL-10: photographs of 10 classes, 96 × 96 (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.datasets.download.fetch import Tensors
from boolit.lab.datasets.images.base import FixedSizeImageDataset

SIDE = 96
FOLDER = "stl10_binary"


class Stl10(FixedSizeImageDataset, published="stl10"):
    """The labelled images, all ten folds of the training part together."""

    name: Literal["stl10"] = "stl10"

    side: ClassVar[int] = SIDE

    @staticmethod
    def parse(contents: Mapping[str, bytes]) -> Tensors:
        found = {}
        for part in ("train", "test"):
            found[f"{part}_x"] = images(contents[f"{FOLDER}/{part}_X.bin"])
            found[f"{part}_y"] = torch.tensor(list(contents[f"{FOLDER}/{part}_y.bin"])) - 1
            if len(found[f"{part}_x"]) != len(found[f"{part}_y"]):
                raise UserError(f"{part}_X.bin and {part}_y.bin of STL-10 have different lengths; fetch stl10 again")
        return found


def images(content: bytes) -> Tensor:
    """Images that are kept column by column.

    Shape: ``(samples, 3, 96, 96)`` bytes.
    """
    columns = np.frombuffer(content, np.uint8).reshape(-1, 3, SIDE, SIDE)
    return torch.from_numpy(np.ascontiguousarray(columns.swapaxes(2, 3)))
