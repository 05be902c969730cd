"""Images decoded once, kept as mapped memory: a start with the same images decodes none."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key, name_bytes
from boolit.lab.common.progress import count_progress
from boolit.lab.datasets.download.published import UnreadableError, archive_entries
from boolit.lab.datasets.images.decoding import Decoded, Encoded, decode_all

VERSION = 1  # counts the changes of what is made of an image


@dataclass(frozen=True)
class ImageArchive:
    """A folder or archive of images. ``identity`` tells them from others at the same place; what is made of them is kept in
    the folder ``cache``, and taken from there while the identity stays the same.
    """

    path: Path
    cache: Path
    identity: str

    def kept(self, *words: object) -> Path:
        """Where something made of the images is kept."""
        return self.cache / cache_key(VERSION, self.identity, *words)


def load_images(archive: ImageArchive, names: Sequence[str], side: int, verify: Callable[[], None]) -> Tensor:
    """The images of some names, in that order; before they are decoded, ``verify`` is called.

    Shape: ``(images, 3, side, side)`` bytes.
    """
    kept, shape = archive.kept(side, *names), (len(names), 3, side, side)
    if not (kept.is_file() and kept.stat().st_size == math.prod(shape)):
        verify()
        with _write_cache(kept, f"{math.prod(shape) / 1e6:,.0f} MB of decoded images") as file:
            _write(file, decode_all(_read_images(archive.path, names), len(names), side), len(names))
    # Copied on writing, as torch has no tensors that cannot be written to.
    return torch.from_numpy(np.memmap(kept, np.uint8, "c", shape=shape))


def list_names(archive: ImageArchive, verify: Callable[[], None]) -> list[str]:
    """The names of all files; of an archive they are kept, as it must be read through to find them; ``verify`` is called before
    it is opened.
    """
    kept = archive.kept("names")
    if archive.path.is_dir() or not kept.is_file():
        verify()
        with _report_damage(archive.path):
            names = [entry.name for entry in archive_entries(archive.path)]
        if archive.path.is_dir():
            return names
        with _write_cache(kept, "the names of the images") as file:
            file.write(name_bytes("\n".join(names)))
    return kept.read_text("utf-8", "surrogateescape").split("\n")


def file_stamp(path: Path) -> str:
    """Size and time of a file, or of all files in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = ((file.relative_to(path), file.stat()) for file in files if file.is_file())
    lines = "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)
    return hashlib.sha256(name_bytes(lines)).hexdigest()


@contextmanager
def _write_cache(kept: Path, what: str) -> Iterator[IO[bytes]]:
    """A file that gets its name once it is complete."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as part, part.open("xb") as file:
            yield file
    except OSError as error:
        raise UserError(
            f"{what} cannot be kept in {kept.parent} ({error.strerror or error}); make room there, or set BOOLIT_DATA to "
            "another folder"
        ) from None


def _write(file: IO[bytes], decoded: Iterator[Decoded], count: int) -> None:
    with count_progress(lines=False) as begin:
        advance = begin("decoding images", count)
        for row, pixels in decoded:
            file.seek(row * pixels.nbytes)
            file.write(pixels.data)
            advance(1)


def _read_images(path: Path, names: Sequence[str]) -> Iterator[Encoded]:
    rows = {name: row for row, name in enumerate(names)}
    with _report_damage(path):
        for entry in archive_entries(path):
            if entry.name in rows:
                place = str(path.parent / entry.name) if path.is_dir() else f"{entry.name} in {path}"
                yield rows.pop(entry.name), place, entry.read()
    if rows:
        raise UserError(f"{path} lacks the image {next(iter(rows))}; put the whole one there")


@contextmanager
def _report_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except UnreadableError as error:
        raise UserError(f"{path} {error}; put the whole one there") from None
