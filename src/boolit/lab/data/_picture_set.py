"""Colour pictures of one size with classes, in published training and test parts, small enough to be parsed at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from boolit.lab.data._dataset import Dataset, Description, Split, Task
from boolit.lab.data._normalisation import Normalisation, normaliser
from boolit.lab.data._parsed import Tensors, tensors
from boolit.lab.data._published import Published
from boolit.lab.data._stratified import interleaved


class PictureSet(Published, ABC):
    """``validation`` is the share of the training pictures to hold out as the split ``valid``, the same of every class;
    ``subset`` the share of the others to train on, the first ones.

    Shape: pictures are stored as ``(samples, 3, height, width)`` bytes.
    """

    validation: float = Field(0.0, ge=0, lt=1)
    subset: float = Field(1.0, gt=0, le=1)
    normalisation: Normalisation = "imagenet"

    task: ClassVar[Task] = "classes"
    classes: ClassVar[int] = 10
    side: ClassVar[int] = 32
    version: ClassVar[int] = 1

    @staticmethod
    @abstractmethod
    def parsed(contents: Mapping[str, bytes]) -> Tensors:
        """The tensors ``train_x``, ``train_y``, ``test_x`` and ``test_y`` in some files."""

    def describe(self) -> Description:
        trained, held_out = self._rows(self.samples["train"])
        samples = {"train": trained, "test": self.samples["test"]} | ({"valid": held_out} if held_out else {})
        return Description((3, self.side, self.side), self.classes, self.task, samples)

    def load(self) -> Dataset:
        found = tensors(self.remotes, self.version, self.parsed)
        splits = self._split(found["train_x"], found["train_y"])
        splits["test"] = Split(found["test_x"], found["test_y"])
        return Dataset(splits, self.task, self.classes, encode=normaliser(self.normalisation))

    def _split(self, x: Tensor, y: Tensor) -> dict[str, Split]:
        trained, held_out = self._rows(len(x))
        if not held_out:  # parts of the mapped file, rather than copies
            return {"train": Split(x[:trained], y[:trained])}
        order = interleaved(y, 0, self.name, "validation")
        rows = {"valid": order[:held_out].sort().values, "train": order[held_out:].sort().values[:trained]}
        return {name: Split(x[taken], y[taken]) for name, taken in rows.items()}

    def _rows(self, count: int) -> tuple[int, int]:
        """How many of the training pictures are trained on, and how many are held out."""
        held_out = round(self.validation * count)
        return max(1, round(self.subset * (count - held_out))), held_out


def joined(parts: list[Tensor]) -> Tensor:
    """Parts of one array, or the only one as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
