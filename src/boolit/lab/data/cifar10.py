"""CIFAR-10: photographs of 10 classes, 32 × 32 (s:cifar)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from boolit.lab.data import register
from boolit.lab.data._cifar import arrays_digest, parts
from boolit.lab.data._normalisation import Normalisation
from boolit.lab.data._parsed import Tensors
from boolit.lab.data._picture_set import PictureSet
from boolit.lab.data._remote import Member, Remote

FOLDER = "cifar-10-batches-py"
# Of pictures and labels alone: the same in a batch that was pickled anew. The training pictures with these have the mean
# 0.49139968, 0.48215841, 0.44653091 and deviation 0.24703223, 0.24348513, 0.26158784 that are in everybody's code.
BATCHES = {
    "data_batch_1": "ba52cb2d72c412975d7556bb26bd094956f1c002d1937053f6f1252f2ac17114",
    "data_batch_2": "350ff9000489d02f2568c0dcf4912ffdbae9e50932147905fb1b8159ad54f0ac",
    "data_batch_3": "a2b8653fc457df407af6c38b7e0d1a12530f3b5f81fce9f81516efd065daf722",
    "data_batch_4": "133e6292c377755074c305db8a684d48d5397372cb0aba34f52b4335eab35d97",
    "data_batch_5": "eb08cdc11fd1267ef871cf4790f193684b3f556d13317be68f4eb374a078ea87",
    "test_batch": "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a",
}
*TRAIN, TEST = (f"{FOLDER}/{name}" for name in BATCHES)


@register
class Cifar10(PictureSet):
    """Pixels are scaled to −1 … 1, as in the authors' code, unless ``normalisation`` says otherwise.

    NOTE[paper]: how pixels are scaled is not said.
    """

    name: Literal["cifar10"] = "cifar10"
    normalisation: Normalisation = "half"

    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 50_000, "test": 10_000})
    home: ClassVar[str] = "Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html"
    licence: ClassVar[str] = "none stated"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            "cifar10",
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "",
            170_498_071,
            FOLDER,
            tuple(Member(f"{FOLDER}/{name}", digest, arrays_digest) for name, digest in BATCHES.items()),
        ),
    )

    @staticmethod
    def parsed(contents: Mapping[str, bytes]) -> Tensors:
        return parts(contents, TRAIN, TEST, b"labels")
