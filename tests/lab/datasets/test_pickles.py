"""Pickles of arrays are read; whatever else a pickle asks for is not done."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from boolit.lab.datasets.download.pickles import unpickle_arrays
from boolit.lab.datasets.download.published import UnreadableError


class Calling:
    """What unpickles as the result of a call."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def made_by_python_2(pixels: np.ndarray) -> bytes:
    """A dict with an array, opcode by opcode as cPickle wrote it: strings of bytes, numpy's old place."""
    rows, columns = pixels.shape
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    content = b"T" + pixels.size.to_bytes(4, "little") + pixels.tobytes()
    shape = b"J" + rows.to_bytes(4, "little") + b"J" + columns.to_bytes(4, "little") + b"\x86"
    begun = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return b"\x80\x02}U\x04data" + begun + b"(K\x01" + shape + kind + b"\x89" + content + b"tbs."


@given(arrays(st.sampled_from(["u1", "<i8", ">i4", "f4", "?"]), (3, 2)), st.sampled_from([2, 3, 4]))
def test_arrays_in_plain_containers_come_back(array: np.ndarray, protocol: int) -> None:
    held = {b"data": array, b"labels": [1, 2], b"name": b"x\xff", "t": (None, 1.5, "é")}
    found = unpickle_arrays(pickle.dumps(held, protocol))
    assert found[b"data"].dtype == array.dtype
    assert np.array_equal(found.pop(b"data"), array, equal_nan=array.dtype.kind == "f")
    assert found == {name: value for name, value in held.items() if name != b"data"}
    assert np.dtype("i4").isnative


def test_what_python_2_wrote_is_read() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = unpickle_arrays(made_by_python_2(pixels))
    assert np.array_equal(found[b"data"], pixels)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("wrap", [lambda call: call, lambda call: {b"data": [call], b"labels": []}])
def test_no_call_is_made(protocol: int, wrap: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    system, *others = (
        Calling(os.system, f"touch {mark}"),
        Calling(eval, touch),
        Calling(exec, touch),
        Calling(getattr, np.ndarray, "tofile"),
        Calling(np.fromfile, mark),
    )
    for call in (system, *others):
        with pytest.raises(UnreadableError, match=r"^calls .*, and a pickle of arrays has no need to$"):
            unpickle_arrays(pickle.dumps(wrap(call), protocol))
    assert not mark.exists()
    pickle.loads(pickle.dumps(wrap(system), protocol))  # as any other unpickler would have
    assert mark.exists()


@pytest.mark.parametrize(
    ("opcodes", "fault"),
    [
        (b"cposix\nsystem\n(S'true'\ntR.", "calls posix.system"),
        (b"(S'true'\niposix\nsystem\n.", "calls posix.system"),
        (b"(cposix\nsystem\nS'true'\no.", "calls posix.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "calls os.system"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.", r"calls numpy\.ndarray\.dumps"),
        (b"\x80\x02cnumpy\nndarray\n(K\x04t\x81.", "is no whole pickle"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "encodes with 'rot13'"),
        (made_by_python_2(np.zeros((1, 1), np.uint8)).replace(b"U\x02u1", b"U\x01O"), "has an array of object"),
        (made_by_python_2(np.zeros((1, 1), np.uint8)).replace(b"U\x02u1", b"U\x02u8"), "is no whole pickle"),
        (b"\x80\x02P1\n.", "is no whole pickle"),
        (b"\x80\x02}", "is no whole pickle"),
        (b"", "is no whole pickle"),
    ],
)
def test_a_pickle_of_another_kind_is_told(opcodes: bytes, fault: str) -> None:
    with pytest.raises(UnreadableError, match=fault):
        unpickle_arrays(opcodes)


@given(st.data())
def test_damage_is_told_or_harmless(data: st.DataObject) -> None:
    content = bytearray(made_by_python_2(np.zeros((10, 10), np.uint8)))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UnreadableError):  # numpy's own unpickling ends the process at some of these
        unpickle_arrays(bytes(content))


def shared(make: Callable[[Any], Any]) -> Any:
    held = make(())
    for _ in range(100):
        held = make((held, held))
    return held


def test_few_bytes_that_stand_for_endless_values_are_refused() -> None:
    content = pickle.dumps({b"data": shared(list)}, 2)
    assert len(content) < 1024
    with pytest.raises(UnreadableError, match="holds more than 262,144 values"):
        unpickle_arrays(content)


def test_a_key_whose_hash_would_take_for_ever_is_refused() -> None:
    nested = b")" + b"".join(b"q" + bytes([place]) + b"h" + bytes([place]) + b"\x86" for place in range(100))
    with pytest.raises(UnreadableError, match="a tuple as a key"):
        unpickle_arrays(b"\x80\x02}(" + nested + b"K\x01u.")


def test_a_place_in_the_memo_takes_no_memory() -> None:
    tracemalloc.start()
    unpickle_arrays(
        b"\x80\x02Nr" + (2**24).to_bytes(4, "little") + b"."
    )  # C's unpickler takes 16 bytes for each place before it
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
