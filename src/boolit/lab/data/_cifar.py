"""The format of CIFAR's "python version": pickled dicts with an array of pictures and a list of labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from boolit.lab.data._parsed import Tensors
from boolit.lab.data._pickles import plain
from boolit.lab.data._picture_set import joined
from boolit.lab.data._remote import UnreadableError
from boolit.lab.errors import UserError

SIDE = 32


def batch(content: bytes, labels: bytes) -> tuple[Tensor, Tensor]:
    """The pictures of a batch, red before green before blue, and its labels of that name.

    Shape: ``(samples, 3, 32, 32)`` bytes and ``(samples,)`` class numbers.
    """
    found = plain(content)
    try:
        x = torch.from_numpy(np.ascontiguousarray(found[b"data"], np.uint8)).view(-1, 3, SIDE, SIDE)
        y = torch.tensor(found[labels], dtype=torch.int64)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, IndexError) as error:
        raise UnreadableError(f"is no batch of pictures with {labels.decode()} ({type(error).__name__}: {error})") from None
    if y.shape != x.shape[:1]:
        raise UnreadableError(f"has {len(x):,} pictures, but labels of the shape {tuple(y.shape)}")
    return x, y


def arrays_digest(content: bytes) -> str:
    """The SHA-256 of a batch's pictures and labels, however they were pickled."""
    pictures, labels = batch(content, b"labels")
    digest = hashlib.sha256(pictures.numpy().data)
    digest.update(labels.to(torch.uint8).numpy().data)
    return digest.hexdigest()


def parts(contents: Mapping[str, bytes], train: Sequence[str], test: str, labels: bytes) -> Tensors:
    """The training and the test part of the batches with some names."""
    batches = [_named(contents, name, labels) for name in train]
    test_x, test_y = _named(contents, test, labels)
    train_x, train_y = (joined(list(column)) for column in zip(*batches, strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


def _named(contents: Mapping[str, bytes], name: str, labels: bytes) -> tuple[Tensor, Tensor]:
    try:
        return batch(contents[name], labels)
    except UnreadableError as error:
        raise UserError(f"{name} {error}; fetch it again") from None
