"""STL-10: photographs of 10 classes, 96 × 96 (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from boolit.lab.common.errors import UserError
from boolit.lab.datasets.download.fetch import Tensors
from boolit.lab.datasets.download.published import ArchiveMember, PublishedFile
from boolit.lab.datasets.images.base import FixedSizeImageDataset

SIDE = 96
FOLDER = "stl10_binary"
# The MD5s that torchvision compares. The 100,000 images without labels in the same archive are not read.
MEMBERS = {
    "train_X.bin": "918c2871b30a85fa023e0c44e0bee87f",
    "train_y.bin": "5a34089d4802c674881badbb80307741",
    "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
    "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
}


class Stl10(FixedSizeImageDataset):
    """The labelled images, all ten folds of the training part together."""

    name: Literal["stl10"] = "stl10"

    side: ClassVar[int] = SIDE
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 5_000, "test": 8_000})
    home: ClassVar[str] = "Coates, Ng and Lee 2011, cs.stanford.edu/~acoates/stl10"
    licence: ClassVar[str] = "none stated; the images are ImageNet's: for non-commercial research and education"
    files: ClassVar[tuple[PublishedFile, ...]] = (
        PublishedFile(
            "stl10",
            "stl10_binary.tar.gz",
            ("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
            "",
            2_640_397_119,
            FOLDER,
            tuple(ArchiveMember(f"{FOLDER}/{file}", digest) for file, digest in MEMBERS.items()),
        ),
    )

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
