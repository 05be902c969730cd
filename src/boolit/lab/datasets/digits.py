"""Handwritten digits, 8 × 8, from scikit-learn: a real dataset without a download."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from boolit.lab.common.random import generator
from boolit.lab.datasets.base import Encode, Split, pixel_scale
from boolit.lab.datasets.download import ArrayDataset, PublishedFile

encode_digits = pixel_scale(2 / 16, 1.0)  # grey levels 0 … 16 to −1 … 1


class Digits(ArrayDataset):
    """A fixed random 80:20 split."""

    name: Literal["digits"] = "digits"

    inputs: ClassVar[tuple[int, ...]] = (8, 8)
    ordered: ClassVar[bool] = True
    samples: ClassVar[Mapping[str, int]] = {"train": 1_437, "test": 360}
    files: ClassVar[tuple[PublishedFile, ...]] = ()

    @staticmethod
    def _parse(_contents: Mapping[str, bytes]) -> dict[str, Split]:
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y = torch.from_numpy(digits.images).to(torch.uint8), torch.from_numpy(digits.target).long()
        train, test = torch.randperm(len(x), generator=generator(0, "digits", "split")).split([1_437, 360])
        return {"train": Split(x[train], y[train]), "test": Split(x[test], y[test])}

    def _encoding(self, _train: Tensor) -> Encode:
        return encode_digits
