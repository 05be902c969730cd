"""MATLAB files, in which some datasets keep arrays and annotations."""

from __future__ import annotations

import io
from typing import Any

from boolit.lab.errors import UserError


def variable(content: bytes, name: str, file: str) -> Any:
    """A variable in a MATLAB file (version 5): an array, of records where it is of structs; ``file`` is for what is said of a
    bad one.
    """
    from scipy.io import loadmat

    try:
        found = loadmat(io.BytesIO(content), variable_names=[name])
    except Exception as error:  # a damaged file may fail with any exception
        raise UserError(f"{file} is no whole MATLAB file ({type(error).__name__}: {error}); fetch it again") from None
    if name not in found:
        raise UserError(f"{file} has no variable {name}; fetch it again")
    return found[name]
