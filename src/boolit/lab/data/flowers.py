"""Oxford Flowers: photographs of 102 kinds of flowers (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from boolit.lab.data import register
from boolit.lab.data._dataset import Split
from boolit.lab.data._decoded_set import DecodedSet, Labelled, published_splits, scaled, stratified
from boolit.lab.data._mat import variable
from boolit.lab.data._remote import Remote
from boolit.lab.data._verified import verified

HOME = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
PAPER = {"train": 6_552, "valid": 819, "test": 818}
OFFICIAL_SIZES = {"train": 1_020, "valid": 1_020, "test": 6_149}
OFFICIAL = {"train": "trnid", "valid": "valid", "test": "tstid"}


@register
class Flowers(DecodedSet):
    """``split`` is "paper", or "official": the 1,020 / 1,020 / 6,149 pictures of setid.mat.

    NOTE[paper]: tab:datasets has 6,552 training and 818 test pictures, not the official split; which ones is not known. These
    are random ones of these numbers, the same at every time, with every class in every split; the other 819 are for validation.
    """

    name: Literal["flowers"] = "flowers"
    split: Literal["paper", "official"] = "paper"

    classes: ClassVar[int] = 102
    samples: ClassVar[Mapping[str, int]] = MappingProxyType(PAPER)
    home: ClassVar[str] = "Nilsback and Zisserman 2008, www.robots.ox.ac.uk/~vgg/data/flowers/102"
    licence: ClassVar[str] = "none stated"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            "flowers",
            "102flowers.tgz",
            (HOME + "102flowers.tgz",),
            "2d01ecc807db462958cfe3d92f57a8c252b4abd240eb955770201e45f783b246",
            344_862_509,
            "jpg",
        ),
        Remote(
            "flowers",
            "imagelabels.mat",
            (HOME + "imagelabels.mat",),
            "4903e94206bac23bf772aadf06451916df56b58fc483a62db32a97b82656651d",
            502,
        ),
        Remote(
            "flowers",
            "setid.mat",
            (HOME + "setid.mat",),
            "46b8678f91fd95d3c8f4feab80d271a6c834a1dd896fe29fd3e6ad9ce5c8dccd",
            14_989,
        ),
    )

    def sizes(self) -> Mapping[str, int]:
        return PAPER if self.split == "paper" else OFFICIAL_SIZES

    def splits(self) -> dict[str, Split]:
        pictures, _, _ = self.remotes
        return published_splits(pictures, self._parts(self._labelled()), self.size)

    def _parts(self, labelled: Labelled) -> Mapping[str, Labelled]:
        if self.split == "official":
            return {name: [labelled[number - 1] for number in _column(self.remotes[2], ids)] for name, ids in OFFICIAL.items()}
        return stratified(labelled, scaled(PAPER, len(labelled)), 0, "flowers", "split")

    def _labelled(self) -> Labelled:
        labels = _column(self.remotes[1], "labels")
        return [(f"jpg/image_{number:05d}.jpg", label - 1) for number, label in enumerate(labels, start=1)]


def _column(remote: Remote, name: str) -> list[int]:
    content = b"".join(verified(remote, remote.path))
    return [int(value) for value in variable(content, name, remote.file).ravel()]
