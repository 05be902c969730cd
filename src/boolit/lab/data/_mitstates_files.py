"""MIT-States as it lies in a folder: the pairs of every split, and which pictures show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from boolit.lab.composition import Pairs
from boolit.lab.data._remote import UnreadableError
from boolit.lab.data._t7 import Value, parsed_t7
from boolit.lab.errors import UserError
from boolit.lab.files import read_bounded

METADATA = "metadata_compositional-split-natural.t7"
SPLIT = "compositional-split-natural"
SPLITS: Mapping[str, str] = MappingProxyType({"train": "train", "valid": "val", "test": "test"})
Shown: TypeAlias = tuple[str, str]  # attribute and object
NEITHER = "NA"


@dataclass(frozen=True)
class Listing:
    """Pairs, and of every split the pictures, by their paths below ``images``, and the number of the pair each shows.

    Shape: ``targets`` are ``(pictures,)``.
    """

    pairs: Pairs
    pictures: Mapping[str, list[str]]
    targets: Mapping[str, Tensor]


def listing(folder: Path) -> Listing:
    """What the files of a folder say, but for the pictures."""
    pairs = Pairs.of_names({split: _pairs(folder / SPLIT / f"{word}_pairs.txt") for split, word in SPLITS.items()})
    number = {pair: place for place, pair in enumerate(pairs.listed)}
    pictures: dict[str, list[str]] = {split: [] for split in SPLITS}
    targets: dict[str, list[int]] = {split: [] for split in SPLITS}
    of_word = {word: split for split, word in SPLITS.items()}
    for picture, pair, word in _records(folder / METADATA):
        split = of_word.get(word, "")
        if pair in number and split and bool(pairs.of[split][number[pair]]):
            pictures[split].append(picture)
            targets[split].append(number[pair])
    empty = [split for split, found in pictures.items() if not found]
    if empty:
        raise UserError(f"{folder / METADATA} names no picture of the split {SPLITS[empty[0]]!r} with a pair of it; {FIX}")
    return Listing(pairs, pictures, {split: torch.tensor(numbers) for split, numbers in targets.items()})


def picture_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Where pictures lie; a folder of them may have blanks in its name, as published, or underscores."""
    images = folder / "images"
    try:
        folders = {_joined(path.name): path for path in images.iterdir()}
    except OSError as error:
        raise UserError(f"the pictures in {images} cannot be read ({error.strerror}); {FIX}") from None
    return [_file(images, folders, name) for name in names]


FIX = "put the published files there, as docs/compositional.md says"


def _file(images: Path, folders: Mapping[str, Path], name: str) -> Path:
    inner, _, file = name.rpartition("/")
    home = folders.get(_joined(inner))
    if home is None or file in ("", "..") or "\\" in file:
        raise UserError(f"{images} has no folder of the picture {name!r}; {FIX}")
    return home / file


def _joined(name: str) -> str:
    return name.replace(" ", "_")


def _pairs(path: Path) -> list[Shown]:
    found = []
    for number, line in enumerate(_content(path).decode("utf-8", "replace").splitlines(), start=1):
        words = line.split()
        if words and len(words) != 2:
            raise UserError(f"line {number} of {path} has {len(words)} words, not an attribute and an object; {FIX}")
        found += [(words[0], words[1])] if words else []
    return found


def _records(path: Path) -> Iterator[tuple[str, Shown, str]]:
    """Picture, pair and set of every record that has them."""
    try:
        table = parsed_t7(_content(path))
    except UnreadableError as error:
        raise UserError(f"{path} {error}; {FIX}") from None
    if not isinstance(table, dict):
        raise UserError(f"{path} holds no table of records; {FIX}")
    for key, record in table.items():
        picture, attribute, thing, word = _fields(path, key, record)
        if NEITHER not in (attribute, word):
            yield picture.removeprefix("images/"), (attribute, thing), word


def _fields(path: Path, key: object, record: Value) -> Iterator[str]:
    for name in ("image", "attr", "obj", "set"):
        value = record.get(name) if isinstance(record, dict) else None
        if not isinstance(value, str):
            raise UserError(f"record {key} of {path} has no text {name!r}; {FIX}")
        yield value


def _content(path: Path) -> bytes:
    try:
        return read_bounded(path, fix=FIX)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {FIX}") from None
