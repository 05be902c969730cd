"""Pickles of plain containers and arrays. A pickle names functions to be called: here none but ours are, in numpy's places."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from boolit.lab.datasets.download.published import UnreadableError

MOST_VALUES = 2**18  # CIFAR-100, with most, has 150,000
_PythonUnpickler: Any = pickle._Unpickler
REFUSED = (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.BYTEARRAY8, pickle.NEXT_BUFFER)


def unpickle_arrays(content: bytes) -> Any:
    """What a pickle of dicts, lists, numbers, strings and arrays holds; strings of Python 2 come as bytes.

    Example:
        >>> unpickle_arrays(pickle.dumps({b"labels": [6, 9]}, 2))
        {b'labels': [6, 9]}
        >>> unpickle_arrays(pickle.dumps(print, 2))
        Traceback (most recent call last):
        boolit.lab.datasets.download.published.UnreadableError: calls __builtin__.print, and a pickle of arrays has no need to
    """
    try:
        return _resolve_arrays(_ArrayUnpickler(io.BytesIO(content), encoding="bytes").load(), iter(range(MOST_VALUES)))
    except UnreadableError:
        raise
    except Exception as error:  # a damaged pickle may fail with any exception
        raise UnreadableError(f"is no whole pickle ({type(error).__name__}: {' '.join(str(error).split())})") from None


class _PickledDtype:
    """A type of numbers as pickled: a code, then a state with the byte order.

    numpy's own types and arrays take any state, and a damaged one can crash the process; so these stand for them.
    """

    def __init__(self, code: str | bytes, *_: object) -> None:
        self._code = code.decode() if isinstance(code, bytes) else code
        self._order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self._order = order.decode() if isinstance(order, bytes) else order

    @property
    def numbers(self) -> np.dtype[Any]:
        """The type itself."""
        kind = np.dtype(self._code)
        if kind.kind not in "biuf":
            raise UnreadableError(f"has an array of {kind}, not of numbers")
        return kind.newbyteorder({"<": "<", ">": ">", "|": "|"}[self._order])  # type: ignore[arg-type]


class _PickledArray:
    """An array as pickled: begun empty, then a state with shape, type and content."""

    def __init__(self, *_: object) -> None:
        self.values: NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], _PickledDtype, bool, bytes]) -> None:
        _, shape, kind, by_columns, content = state
        found = np.frombuffer(content, kind.numbers).reshape(shape, order="F" if by_columns else "C")
        self.values = found.copy()  # what is written to must not be the bytes of the pickle


def _latin1(text: str, encoding: str) -> bytes:
    # How Python 3 writes bytes for Python 2. The function of that place would look for any codec it is told.
    if encoding not in ("latin1", b"latin1"):
        raise UnreadableError(f"encodes with {encoding!r} instead of latin1")
    return text.encode("latin1")


ADMITTED: Mapping[str, Callable[..., Any] | None] = MappingProxyType(
    {
        "numpy.core.multiarray._reconstruct": _PickledArray,
        "numpy._core.multiarray._reconstruct": _PickledArray,
        "numpy.dtype": _PickledDtype,
        "numpy.ndarray": None,  # only ever an argument of _reconstruct
        "_codecs.encode": _latin1,
    }
)


class _ArrayUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """Python's own unpickler rather than C's, which takes memory by lengths and places a file merely states.

    A key of a dict is a text or a number: the hash of tuples that share their parts takes for ever. So sets are refused.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load for code, load in _PythonUnpickler.dispatch.items() if bytes([code]) not in REFUSED
    }

    def load_setitem(self) -> None:
        _refuse_other_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        _refuse_other_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        _refuse_other_keys(self.stack[::2])
        super().load_dict()

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict

    def find_class(self, module: str, name: str) -> Any:
        place = f"{module}.{name}"
        if place not in ADMITTED:
            raise UnreadableError(f"calls {place}, and a pickle of arrays has no need to")
        return ADMITTED[place]


def _refuse_other_keys(keys: Iterable[Any]) -> None:
    for key in keys:
        if not isinstance(key, str | bytes | int):
            raise UnreadableError(f"has a dict with a {type(key).__name__} as a key, not a text or a number")


def _resolve_arrays(held: Any, left: Iterator[int]) -> Any:
    if next(left, None) is None:  # lists that hold each other many times are few in the file and endless outside
        raise UnreadableError(f"holds more than {MOST_VALUES:,} values besides its arrays")
    if isinstance(held, _PickledArray):
        return held.values
    if isinstance(held, dict):
        return {key: _resolve_arrays(value, left) for key, value in held.items()}
    if isinstance(held, list | tuple):
        return type(held)(_resolve_arrays(value, left) for value in held)
    return held
