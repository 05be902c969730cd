"""Errors that are the user's to mend, and the packages each optional feature needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Something the user gave is not usable; the message names the value, the rule and the fix, in one sentence.

    It becomes one line and exit code 2; every other exception keeps its traceback.

    Example:
        >>> from boolit.lab import UserError, load_study
        >>> try:
        ...     load_study("paritty")
        ... except UserError as error:
        ...     print(error)
        there is no study 'paritty'; give a .toml file, or one of parity, parity8
    """


@contextmanager
def user_input() -> Iterator[None]:
    """Around code that only reads what the user gave: the library's refusals in it are the user's to mend.

    Example:
        >>> from boolit.nn import Gate
        >>> with user_input():
        ...     Gate("or", k=1)
        Traceback (most recent call last):
        boolit.lab.common.errors.UserError: k=1 is not a group size: a gate reads at least 2 channels
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, IndexError, OSError) as error:
        raise UserError(str(error)) from error


# Which packages each optional feature needs, by the names they are installed under.
EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": (
        *("altair", "filelock", "kornia", "matplotlib", "numpy", "pillow", "platformdirs", "pooch", "pyarrow", "pydantic"),
        *("rich", "safetensors", "scipy", *(() if sys.version_info >= (3, 11) else ("tomli",)), "typer", "vl-convert-python"),
    ),
    "sklearn": ("scikit-learn",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
IMPORTED_AS = {"PIL": "pillow", "vl_convert": "vl-convert-python"}  # where a package's modules have another name
