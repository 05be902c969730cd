"""Errors that are the user's to mend, and the packages each optional feature needs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def lacks_memory(error: BaseException) -> bool:
    """Whether Python, torch or a GPU ran out of memory."""
    torch_lacks = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or torch_lacks


def one_line(error: BaseException) -> str:
    """What was raised and where, in one line; a refusal of the lab's own says enough by itself.

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


# Which packages each optional feature needs, by the names they are installed under.
EXTRAS: dict[str, tuple[str, ...]] = {
    "lab": (
        *("altair", "filelock", "kornia", "matplotlib", "numpy", "pillow", "platformdirs", "pooch", "pyarrow", "pydantic"),
        *("rich", "safetensors", "scipy", *(() if sys.version_info >= (3, 11) else ("tomli",)), "typer", "vl-convert-python"),
    ),
    "sklearn": ("scikit-learn",),
    "cluster": ("distributed",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
IMPORTED_AS = {"PIL": "pillow", "vl_convert": "vl-convert-python"}  # where a package's modules have another name
