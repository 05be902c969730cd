"""CIFAR-100: photographs of 100 classes, 32 × 32 (s:cifar)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from boolit.lab.data import register
from boolit.lab.data._cifar import parts
from boolit.lab.data._normalisation import Normalisation
from boolit.lab.data._parsed import Tensors
from boolit.lab.data._picture_set import PictureSet
from boolit.lab.data._remote import Member, Remote

FOLDER = "cifar-100-python"
TRAIN, TEST = f"{FOLDER}/train", f"{FOLDER}/test"


@register
class Cifar100(PictureSet):
    """The fine labels. Pixels as `Cifar10`'s."""

    name: Literal["cifar100"] = "cifar100"
    normalisation: Normalisation = "half"

    classes: ClassVar[int] = 100
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 50_000, "test": 10_000})
    home: ClassVar[str] = "Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html"
    licence: ClassVar[str] = "none stated"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            "cifar100",
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            "",
            169_001_437,
            FOLDER,
            # The MD5s that torchvision compares: of the pickles themselves, as nobody published one of the arrays.
            (Member(TRAIN, "16019d7e3df5f24257cddd939b257f8d"), Member(TEST, "f0ef6b0ae62326f3e7ffdfab6717acfc")),
        ),
    )

    @staticmethod
    def parsed(contents: Mapping[str, bytes]) -> Tensors:
        return parts(contents, [TRAIN], TEST, b"fine_labels")
