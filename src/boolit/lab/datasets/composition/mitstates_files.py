"""MIT-States as it lies in a folder: the pairs of every split, and which pictures show them.

A value is a code (an integer of 32 bits, little-endian) and what belongs to it: to a number a double, to a text a length and
its bytes, to a boolean an integer, to a table its index, a length and that many keys and values. An index that was there before
stands for the table that had it. There are codes for functions and for Torch's own classes, too; these are refused.
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

from boolit.lab.common.errors import UserError
from boolit.lab.common.files import read_bounded
from boolit.lab.datasets.composition import Pairs
from boolit.lab.datasets.download.published import UnreadableError

# Files that Lua's Torch wrote: numbers, texts, booleans and tables of them. Nothing else is read, and nothing is ever run.

Key: TypeAlias = "float | str | bool"
Value: TypeAlias = "float | str | bool | dict[Key, Value] | None"
NOTHING, NUMBER, TEXT, TABLE, CLASS, BOOLEAN = range(6)
REFUSED: Final = {CLASS: "an object of a Torch class", 6: "a function", 7: "a function", 8: "a function"}
DEEPEST = 32  # tables within tables
SMALLEST_ENTRY = 8  # bytes of a key and a value


def parsed_t7(content: bytes) -> Value:
    """The one value in a file; an `UnreadableError` says what is wrong with it, and where."""
    reader = _Reader(content)
    value = reader.value(DEEPEST)
    if reader.place != len(content):
        raise UnreadableError(f"goes on after its end, at byte {reader.place:,}")
    return value


class _Reader:
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
            raise UnreadableError(f"has tables within tables, more than {DEEPEST} deep, at byte {start:,}")
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
        """A number of things that take so many bytes each, at least: there cannot be more than are left."""
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
