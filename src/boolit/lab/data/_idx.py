"""MNIST's file format: a header with the sizes, then one byte a value."""

from __future__ import annotations

import math
import struct

import numpy as np
import torch
from torch import Tensor

from boolit.lab.errors import UserError

BYTES = bytes([0, 0, 8])  # two zeros and the code of unsigned bytes; the number of dimensions follows


def parse_idx(content: bytes, name: str) -> Tensor:
    """The array in an IDX file of bytes; ``name`` is for what is said of a bad one.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "labels")
        tensor([7, 9], dtype=torch.uint8)
    """
    if content[:3] != BYTES or len(content) < 4:
        raise UserError(
            f"{name} begins with the bytes {content[:4].hex(' ')!r}, an IDX file of bytes with '00 00 08'; fetch it again"
        )
    header = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:header]) if len(content) >= header else (0,)
    if len(content) != header + math.prod(shape):
        raise UserError(f"{name} has {len(content):,} bytes, not what its header says for the shape {shape}; fetch it again")
    values = np.frombuffer(content, np.uint8)[header:].reshape(shape)
    return torch.from_numpy(values.copy())  # a copy, as torch warns of memory that cannot be written to
