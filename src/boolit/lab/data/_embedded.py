"""Features of many views of pictures, encoded once and kept as mapped memory.

A file holds one row after the other. Its length says how far it is, so that a killed process loses a batch at most, and more
views of the same pictures, which come last, cost no more than these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from boolit.lab.data._encoder import Features, Statistics, batch_statistics, refresh
from boolit.lab.data._encoding_bars import Begin, encoding_bars
from boolit.lab.data._gallery import Gallery
from boolit.lab.data._in_order import in_order
from boolit.lab.data._lock import alone
from boolit.lab.errors import UserError
from boolit.lab.models.resnet18 import FEATURES, Resnet18

TYPE = np.dtype("<f2")
ROW_BYTES = FEATURES * TYPE.itemsize


def embedded(
    folder: Path, gallery: Gallery, views: int, encoder: Callable[[], Resnet18], refreshed: bool, shown: bool
) -> Tensor:
    """The features of all views, encoded now where they are not in the folder; ``shown`` says whether a bar tells how far.

    Shape: ``(views of all pictures, 512)``, float16, in the order of `Gallery.pieces`.
    """
    file, rows = folder / "features", gallery.count(views)
    try:
        if not (file.is_file() and file.stat().st_size >= rows * ROW_BYTES):
            folder.mkdir(parents=True, exist_ok=True)
            with alone(folder / "lock"), encoding_bars(shown) as begin:
                _encode(file, gallery, views, _network(folder, gallery, encoder(), refreshed, begin), begin)
        # Copied on writing, as torch has no tensors that cannot be written to.
        return torch.from_numpy(np.memmap(file, TYPE, "c", shape=(rows, FEATURES)))
    except OSError as error:
        fault = f"{rows * ROW_BYTES / 1e6:,.0f} MB of features cannot be kept in {folder} ({error.strerror or error})"
        raise UserError(f"{fault}; make room there, or set BOOLIT_DATA to another folder") from None


def _encode(file: Path, gallery: Gallery, views: int, network: Resnet18, begin: Begin) -> None:
    features, total = Features(network), gallery.count(views)
    with file.open("ab") as opened:
        done = min(total, opened.tell() // ROW_BYTES)
        if done < total:  # what another process made while this one waited may be longer
            opened.truncate(done * ROW_BYTES)
        advance = begin("encoding pictures", total, done)
        for rows in in_order(lambda piece: features(gallery.seen(piece)), gallery.pieces(views, done)):
            opened.write(rows.numpy().astype(TYPE, copy=False).tobytes())
            opened.flush()
            advance(len(rows))


def _network(folder: Path, gallery: Gallery, network: Resnet18, refreshed: bool, begin: Begin) -> Resnet18:
    """The encoder with the statistics of its batch norms refreshed, or with those that an earlier start found."""
    kept = folder / "statistics.safetensors"
    if not refreshed:
        return network
    if kept.is_file():
        network.load_state_dict(load_file(kept), strict=False)
        return network
    advance = begin("refreshing batch norms", len(gallery.splits["train"]), 0)

    def found(rows: Tensor) -> Statistics:
        statistics = batch_statistics(network, gallery.further(rows))
        advance(len(rows))
        return statistics

    part = kept.with_suffix(".part")
    save_file(refresh(network, in_order(found, gallery.shuffled())), part)
    os.replace(part, kept)
    return network
