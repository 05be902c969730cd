"""Caltech-101: photographs of 101 kinds of objects (s:transfer)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Literal

from boolit.lab.data import register
from boolit.lab.data._album import names_in
from boolit.lab.data._dataset import Split
from boolit.lab.data._decoded_set import DecodedSet, Labelled, album_of, published_splits, scaled, stratified
from boolit.lab.data._remote import Remote, faulty
from boolit.lab.data._verified import check

FOLDER = "101_ObjectCategories"
CLUTTER = "BACKGROUND_Google"  # pictures of nothing in particular, which no class is made of
PAPER = {"train": 6_162, "valid": 820, "test": 1_695}


@register
class Caltech101(DecodedSet):
    """A fixed random split with every class in every part.

    NOTE[paper]: the split was another publication's, of which only the sizes are known: 6,162 training and 1,695 test pictures.
    These are random ones of these numbers; the other 820 of the 8,677 are for validation.
    """

    name: Literal["caltech101"] = "caltech101"

    classes: ClassVar[int] = 101
    samples: ClassVar[Mapping[str, int]] = MappingProxyType(PAPER)
    home: ClassVar[str] = "Fei-Fei, Fergus and Perona 2004, data.caltech.edu/records/mzrjq-6wc02"
    licence: ClassVar[str] = "CC BY 4.0"
    remotes: ClassVar[tuple[Remote, ...]] = (
        Remote(
            "caltech101",
            "caltech-101.zip",
            ("https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip?download=1",),
            "331234750fc7f77520e50d9565e8b6907b03565e30320da1401130db08c61f91",
            137_414_764,
            FOLDER,
        ),
    )

    def splits(self) -> dict[str, Split]:
        (remote,) = self.remotes
        labelled = self._labelled(remote)
        parts = stratified(labelled, scaled(PAPER, len(labelled)), 0, "caltech101", "split")
        return published_splits(remote, parts, self.size)

    def _labelled(self, remote: Remote) -> Labelled:
        album = album_of(remote)
        paths = [
            name.split("/") for name in sorted(names_in(album, partial(check, remote, album.path))) if name.endswith(".jpg")
        ]
        found = [path for path in paths if len(path) == 3 and path[0] == FOLDER and path[1] != CLUTTER]
        numbers = {category: number for number, category in enumerate(sorted({path[1] for path in found}))}
        if len(numbers) != self.classes:
            raise faulty(remote, album.path, f"has pictures of {len(numbers)} classes in {FOLDER}, not of {self.classes}")
        return [("/".join(path), numbers[path[1]]) for path in found if not path[2].startswith(".")]
