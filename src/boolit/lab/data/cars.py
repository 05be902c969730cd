"""Stanford Cars: photographs of 196 models of cars (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from pydantic import Field

from boolit.lab.data import register
from boolit.lab.data._archives import entries
from boolit.lab.data._dataset import Split
from boolit.lab.data._decoded_set import DecodedSet, Labelled, published_splits, stratified
from boolit.lab.data._mat import records
from boolit.lab.data._remote import Remote, UnreadableError, faulty
from boolit.lab.data._verified import check, verified
from boolit.lab.errors import UserError

# The addresses of the pictures answer no more, and their copies elsewhere ask for an account: they are put here by hand.
NOWHERE: tuple[str, ...] = ()
TRAIN_ANNOTATIONS = "devkit/cars_train_annos.mat"


@register
class Cars(DecodedSet):
    """The published split, by the published annotations; ``validation`` is the share of the training pictures to hold out as
    the split ``valid``, the same of every class.
    """

    name: Literal["cars"] = "cars"
    validation: float = Field(0.0, ge=0, lt=1)

    classes: ClassVar[int] = 196
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 8_144, "test": 8_041})
    home: ClassVar[str] = "Krause, Stark, Deng and Fei-Fei 2013, ai.stanford.edu/~jkrause/cars/car_dataset.html"
    licence: ClassVar[str] = "none stated; for non-commercial research and education, as ImageNet's"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            "cars",
            "cars_train.tgz",
            NOWHERE,
            "512b227b30e2f0a8aab9e09485786ab4479582073a144998da74d64b801fd288",
            979_269_282,
            "cars_train",
        ),
        Remote(
            "cars",
            "cars_test.tgz",
            NOWHERE,
            "bffea656d6f425cba3c91c6d83336e4c5f86c6cffd8975b0f375d3a10da8e243",
            977_350_468,
            "cars_test",
        ),
        Remote(
            "cars",
            "car_devkit.tgz",
            NOWHERE,
            "b97deb463af7d58b6bfaa18b2a4de9829f0f79e8ce663dfa9261bf7810e9accd",
            330_960,
            "devkit",
        ),
        Remote(
            "cars",
            "cars_test_annos_withlabels.mat",
            NOWHERE,
            "790f75be8ea34eeded134cc559332baf23e30e91367e9ddca97d26ed9b895f05",
            185_758,
        ),
    )

    def sizes(self) -> Mapping[str, int]:
        held_out = round(self.validation * self.samples["train"])
        return {**self.samples, "train": self.samples["train"] - held_out} | ({"valid": held_out} if held_out else {})

    def splits(self) -> dict[str, Split]:
        train_pictures, test_pictures, devkit, test_annotations = self.remotes
        train = annotated("cars_train", _member(devkit, TRAIN_ANNOTATIONS), TRAIN_ANNOTATIONS)
        content = b"".join(verified(test_annotations, test_annotations.path))
        test = annotated("cars_test", content, test_annotations.file)
        splits = published_splits(train_pictures, self._parts(train), self.size)
        return splits | published_splits(test_pictures, {"test": test}, self.size)

    def _parts(self, train: Labelled) -> Mapping[str, Labelled]:
        held_out = round(self.validation * len(train))
        if not held_out:
            return {"train": train}
        return stratified(train, {"train": len(train) - held_out, "valid": held_out}, 0, "cars", "validation")


def annotated(folder: str, content: bytes, file: str) -> Labelled:
    """The pictures an annotation file names, in a folder, and their classes."""
    found = records(content, "annotations", ("fname", "class"), file)
    if not all(isinstance(number, int) and 1 <= number <= Cars.classes for _, number in found):
        raise UserError(f"{file} has a class that is none of 1 to {Cars.classes}; put the published one there")
    return [(f"{folder}/{picture}", int(number) - 1) for picture, number in found]


def _member(remote: Remote, name: str) -> bytes:
    path = remote.kept or remote.path
    check(remote, path)
    try:
        for entry in entries(path):
            if entry.name == name:
                return entry.read()
    except UnreadableError as error:
        raise faulty(remote, path, str(error)) from None
    raise faulty(remote, path, f"lacks {name}")
