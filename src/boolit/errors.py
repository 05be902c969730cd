"""Errors that the user can fix, and the packages that each optional feature needs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(ValueError):
    """Invalid input. The message names the value, the rule and the fix in one line.

    The command line prints the message and exits with code 2; every other exception keeps its traceback.

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
    """Turn errors of code that only reads user input into `UserError`.

    Example:
        >>> from boolit.nn import Gate
        >>> with user_input():
        ...     Gate("or", k=1)
        Traceback (most recent call last):
        boolit.errors.UserError: k=1 is not a group size: a gate reads at least 2 channels
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, IndexError, OSError) as error:
        raise UserError(str(error)) from error


def lacks_memory(error: BaseException) -> bool:
    """Return whether Python, torch or a GPU ran out of memory."""
    torch_lacks = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or torch_lacks


def one_line(error: BaseException) -> str:
    """Format an error on one line, with the place where it was raised unless it is a `UserError`.

    Example:
        >>> one_line(UserError("there is no study 'paritty'")), one_line(MemoryError())
        ("there is no study 'paritty'", 'out of memory')
    """
    message = " ".join(str(error).split())
    if isinstance(error, UserError):
        return message
    if lacks_memory(error):
        return "out of memory"
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name} line {frames[-1].lineno}: " if frames else ""
    if isinstance(error, SyntaxError):
        place = f"{Path(error.filename or '').name} line {error.lineno}: "
    return f"{place}{type(error).__name__}: {message}"


# The packages that each optional feature needs, by the names they are installed under.
EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": (
        *("altair", "filelock", "jinja2", "matplotlib", "numpy", "pandas", "pillow", "platformdirs", "pooch", "pydantic"),
        *("rich", "safetensors", "scikit-learn", "scipy", "skops", "typer", "vl-convert-python"),
        *(() if sys.version_info >= (3, 11) else ("tomli",)),
    ),
    "sklearn": ("pandas", "scikit-learn", "skops"),
    "cluster": ("distributed",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
IMPORTED_AS = {"PIL": "pillow", "sklearn": "scikit-learn", "vl_convert": "vl-convert-python"}  # modules with another name
