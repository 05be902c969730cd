"""The files of MIT-States: the pairs of every split, and the images of each pair, from a file in Lua Torch's format.

In that format, a value is a type code (32-bit integer, little-endian) and its content: for a number a double, for a text a
length and its bytes, for a boolean an integer, for a table its index, a length and that many keys and values. An index that
occurred before refers to that table. Codes for functions and Torch classes are refused: nothing is ever executed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import read_bounded
from boolit.lab.datasets.composition.pairs import Pair, Pairs
from boolit.lab.datasets.download.published import UnreadableError

Key: TypeAlias = "float | str | bool"
Value: TypeAlias = "float | str | bool | dict[Key, Value] | None"
NOTHING, NUMBER, TEXT, TABLE, CLASS, BOOLEAN = range(6)
REFUSED: Final = {CLASS: "an object of a Torch class", 6: "a function", 7: "a function", 8: "a function"}
MAX_DEPTH = 32  # of nested tables
SMALLEST_ENTRY = 8  # bytes of a key and a value
METADATA = "metadata_compositional-split-natural.t7"
SPLIT = "compositional-split-natural"
SPLITS: Mapping[str, str] = MappingProxyType({"train": "train", "valid": "val", "test": "test"})
NEITHER = "NA"
FIX = "put the published files there, as docs/compositional.md says"


def parse_t7(content: bytes) -> Value:
    """The one value in a file; an `UnreadableError` says what is wrong with it, and where."""
    reader = _T7Reader(content)
    value = reader.value(MAX_DEPTH)
    if reader.place != len(content):
        raise UnreadableError(f"goes on after its end, at byte {reader.place:,}")
    return value


class _T7Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._tables, self.place = content, dict[int, "dict[Key, Value]"](), 0

    def value(self, depth: int) -> Value:
        start, code = self.place, self._integer()
        if code == NOTHING:
            return None
        if code == NUMBER:
            return float(struct.unpack("<d", self._bytes(8))[0])
        if code == TEXT:
            return self._text()
        if code == BOOLEAN:
            return self._integer() != 0
        if code != TABLE:
            what = REFUSED.get(code, f"a value of the unknown kind {code}")
            raise UnreadableError(f"holds {what} at byte {start:,}, where only numbers, texts, booleans and tables are read")
        return self._table(depth)

    def _table(self, depth: int) -> dict[Key, Value]:
        start, index = self.place, self._integer()
        if index in self._tables:
            return self._tables[index]
        if depth == 0:
            raise UnreadableError(f"has tables within tables, more than {MAX_DEPTH} deep, at byte {start:,}")
        table = self._tables[index] = {}  # before its entries, as these may refer to it
        for _ in range(self._length(SMALLEST_ENTRY)):
            key_start, key = self.place, self.value(depth - 1)
            if key is None or isinstance(key, dict):
                raise UnreadableError(f"has a table with a key that is no number, text or boolean at byte {key_start:,}")
            table[key] = self.value(depth - 1)
        return table

    def _text(self) -> str:
        start = self.place
        try:
            return self._bytes(self._length(1)).decode()
        except UnicodeDecodeError:
            raise UnreadableError(f"has a text that is not UTF-8 at byte {start:,}") from None

    def _length(self, unit: int) -> int:
        """A number of entries of at least ``unit`` bytes each, which must fit into the rest of the file."""
        start, length = self.place, self._integer()
        if not 0 <= length <= (len(self._content) - self.place) // unit:
            raise UnreadableError(f"says {length:,} entries follow at byte {start:,}, more than it has; it may be cut off")
        return length

    def _integer(self) -> int:
        return int(struct.unpack("<i", self._bytes(4))[0])

    def _bytes(self, count: int) -> bytes:
        if self.place + count > len(self._content):
            raise UnreadableError(f"is cut off at byte {len(self._content):,}")
        self.place += count
        return self._content[self.place - count : self.place]


@dataclass(frozen=True)
class MitStatesIndex:
    """Pairs, and for every split its images, as paths below ``images``, and the number of each image's pair.

    Shape: ``targets`` are ``(images,)``.
    """

    pairs: Pairs
    images: Mapping[str, list[str]]
    targets: Mapping[str, Tensor]


def read_index(folder: Path) -> MitStatesIndex:
    """Reads all files of a folder except the images."""
    pairs = Pairs.from_names({split: _read_pairs(folder / SPLIT / f"{word}_pairs.txt") for split, word in SPLITS.items()})
    number = {pair: place for place, pair in enumerate(pairs.names)}
    images: dict[str, list[str]] = {split: [] for split in SPLITS}
    targets: dict[str, list[int]] = {split: [] for split in SPLITS}
    of_word = {word: split for split, word in SPLITS.items()}
    for image, pair, word in _read_records(folder / METADATA):
        split = of_word.get(word, "")
        if pair in number and split and bool(pairs.masks[split][number[pair]]):
            images[split].append(image)
            targets[split].append(number[pair])
    for split, names in images.items():
        if not names:
            raise UserError(f"{folder / METADATA} names no image of the split {SPLITS[split]!r} with a pair of it; {FIX}")
    return MitStatesIndex(pairs, images, {split: torch.tensor(numbers) for split, numbers in targets.items()})


def image_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """The paths of images; the names of their folders may have spaces, as published, or underscores."""
    images = folder / "images"
    try:
        folders = {path.name.replace(" ", "_"): path for path in images.iterdir()}
    except OSError as error:
        raise UserError(f"the images in {images} cannot be read ({error.strerror}); {FIX}") from None
    paths = []
    for name in names:
        inner, _, file = name.rpartition("/")
        parent = folders.get(inner.replace(" ", "_"))
        if parent is None or file in ("", "..") or "\\" in file:
            raise UserError(f"{images} has no folder of the image {name!r}; {FIX}")
        paths.append(parent / file)
    return paths


def _read_pairs(path: Path) -> list[Pair]:
    found = []
    for number, line in enumerate(_read(path).decode("utf-8", "replace").splitlines(), start=1):
        words = line.split()
        if words and len(words) != 2:
            raise UserError(f"line {number} of {path} has {len(words)} words, not an attribute and an object; {FIX}")
        found += [(words[0], words[1])] if words else []
    return found


def _read_records(path: Path) -> Iterator[tuple[str, Pair, str]]:
    """Image, pair and set of every record that has them."""
    try:
        table = parse_t7(_read(path))
    except UnreadableError as error:
        raise UserError(f"{path} {error}; {FIX}") from None
    if not isinstance(table, dict):
        raise UserError(f"{path} holds no table of records; {FIX}")
    for key, record in table.items():
        image, attribute, thing, word = _fields(path, key, record)
        if NEITHER not in (attribute, word):
            yield image.removeprefix("images/"), (attribute, thing), word


def _fields(path: Path, key: object, record: Value) -> Iterator[str]:
    for name in ("image", "attr", "obj", "set"):
        value = record.get(name) if isinstance(record, dict) else None
        if not isinstance(value, str):
            raise UserError(f"record {key} of {path} has no text {name!r}; {FIX}")
        yield value


def _read(path: Path) -> bytes:
    try:
        return read_bounded(path, fix=FIX)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {FIX}") from None
