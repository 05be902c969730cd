"""Files that Lua's Torch wrote: numbers, texts, booleans and tables of them. Nothing else is read, and nothing is ever run.

A value is a code (an integer of 32 bits, little-endian) and what belongs to it: to a number a double, to a text a length and
its bytes, to a boolean an integer, to a table its index, a length and that many keys and values. An index that was there before
stands for the table that had it. There are codes for functions and for Torch's own classes, too; these are refused.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from boolit.lab.data._remote import UnreadableError

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
