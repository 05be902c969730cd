"""Torch's old files: values come back as they were written; everything else is refused, and named."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boolit.lab.datasets.composition.mitstates_files import MAX_DEPTH, parse_t7
from boolit.lab.datasets.download.published import UnreadableError

T7: TypeAlias = Callable[[Any], bytes]
KEYS = st.floats(allow_nan=False) | st.text() | st.booleans()
VALUES = st.recursive(st.none() | KEYS, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)


@given(VALUES)
def test_what_is_written_is_read(t7: T7, value: Any) -> None:
    assert parse_t7(t7(value)) == value


def test_bytes_worked_out_by_hand() -> None:
    """{image = "a/b.jpg", [1] = true}, as the format says."""
    text = struct.pack("<ii5s", 2, 5, b"image") + struct.pack("<ii7s", 2, 7, b"a/b.jpg")
    entry = struct.pack("<id", 1, 1.0) + struct.pack("<ii", 5, 1)
    assert parse_t7(struct.pack("<iii", 3, 1, 2) + text + entry) == {"image": "a/b.jpg", 1.0: True}


def test_a_table_that_comes_twice_is_one_and_may_hold_itself(t7: T7) -> None:
    shared = {"x": 1.0}
    found = parse_t7(t7({"first": shared, "second": shared}))
    assert isinstance(found, dict)
    assert found["first"] is found["second"]
    itself: dict[str, Any] = {"x": 1.0}
    itself["self"] = itself
    circular = parse_t7(t7(itself))
    assert isinstance(circular, dict)
    assert circular["self"] is circular


def nested(depth: int) -> Any:
    return {"inner": nested(depth - 1)} if depth else 0.0


def integers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


REFUSED: list[tuple[Callable[[T7], bytes], str]] = [
    (lambda t7: t7({"x": 1}) + b"more", "goes on after its end, at byte 33"),
    (lambda t7: integers(4, 1) + t7("V 1")[4:] + t7("torch.DoubleTensor")[4:], "an object of a Torch class at byte 0"),
    (lambda t7: integers(3, 1, 1) + t7("run") + integers(8, 2) + bytes(64), "a function at byte 23"),
    (lambda _: integers(6) + bytes(64), "a function at byte 0"),
    (lambda _: integers(7) + bytes(64), "a function at byte 0,"),
    (lambda _: integers(99), "unknown kind 99 at byte 0"),
    (lambda _: integers(-1), "unknown kind -1 at byte 0"),
    (lambda t7: t7(nested(MAX_DEPTH + 1)), f"more than {MAX_DEPTH} deep"),
    (lambda _: integers(2, 2**30) + b"short", "1,073,741,824 entries follow at byte 4"),
    (lambda _: integers(2, -5) + b"short", "-5 entries follow"),
    (lambda _: integers(3, 1, 2**30) + bytes(80), "1,073,741,824 entries follow at byte 8"),
    (lambda t7: integers(3, 1, 1) + t7(None) + t7(1), "a key that is no number, text or boolean at byte 12"),
    (lambda t7: integers(3, 1, 1, 3, 1) + t7(1), "a key that is no number"),
    (lambda t7: t7(b"\xff\xfe"), "a text that is not UTF-8 at byte 4"),
    (lambda _: b"", "is cut off at byte 0"),
    (lambda _: b"\x89PNG\r\n", "unknown kind"),
]


@pytest.mark.parametrize(("content", "fault"), REFUSED, ids=[fault for _, fault in REFUSED])
def test_other_files_are_refused_and_the_place_is_named(t7: T7, content: Callable[[T7], bytes], fault: str) -> None:
    with pytest.raises(UnreadableError, match=fault):
        parse_t7(content(t7))


def test_the_deepest_tables_are_read(t7: T7) -> None:
    assert parse_t7(t7(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


@given(VALUES, st.data())
def test_a_file_that_is_cut_off_is_never_read(t7: T7, value: Any, data: st.DataObject) -> None:
    whole = t7(value)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(UnreadableError):
        parse_t7(whole[:cut])


@given(st.binary(max_size=200))
def test_no_bytes_lead_to_anything_but_a_value_or_a_refusal(content: bytes) -> None:
    with suppress(UnreadableError):
        parse_t7(content)
