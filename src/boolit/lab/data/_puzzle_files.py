"""Pictures and answers of many problems, read once from their files and kept as mapped memory.

A configuration has two files, of one row after the other: pictures scaled to some side, and answers. The shorter of them says
how far they are, so that a killed process loses a problem at most, and further problems of the same set only cost these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boolit.lab.data._in_order import in_order
from boolit.lab.errors import UserError
from boolit.lab.raven.drawing import SIDE
from boolit.lab.raven.files import PANELS, read
from boolit.lab.raven.progress import Advance

Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PuzzleFiles:
    """Where the problems of a configuration are: files with some names in a folder, and what is kept of them."""

    configuration: str
    folder: Path
    names: Sequence[str]
    kept: Path
    side: int

    @property
    def unread(self) -> int:
        """How many are not kept yet; of the others the files themselves are no longer needed."""
        return max(0, len(self.names) - self._done())

    def read(self, advance: Advance) -> None:
        """Reads what is not kept yet."""
        done = self._done()
        try:
            self.kept.mkdir(parents=True, exist_ok=True)
            for path, bytes_of_a_row in self._files():
                with path.open("ab") as file:
                    file.truncate(done * bytes_of_a_row)
            self._append([self.folder / name for name in self.names[done:]], advance)
        except OSError as error:
            need = f"{len(self.names) * self._files()[0][1] / 1e6:,.0f} MB of pictures"
            raise UserError(
                f"{need} cannot be kept in {self.kept} ({error.strerror or error}); make room there, or set BOOLIT_DATA to "
                "another folder"
            ) from None

    def mapped(self) -> tuple[Tensor, Tensor]:
        """The pictures and the answers.

        Shape: ``(problems, 16, side, side)`` and ``(problems,)``, bytes.
        """
        pictures, answers = (
            # Copied on writing, as torch has no tensors that cannot be written to.
            torch.from_numpy(np.memmap(path, np.uint8, "c", shape=(len(self.names), bytes_of_a_row)))
            for path, bytes_of_a_row in self._files()
        )
        return pictures.view(-1, PANELS, self.side, self.side), answers.squeeze(1)

    def _append(self, paths: Sequence[Path], advance: Advance) -> None:
        (pictures, _), (answers, _) = self._files()
        with pictures.open("ab") as picture_file, answers.open("ab", buffering=0) as answer_file:
            for images, target in in_order(partial(_seen, self.side), paths):
                picture_file.write(images.tobytes())
                answer_file.write(bytes([target]))
                advance(1)

    def _done(self) -> int:
        return min(path.stat().st_size // size if path.is_file() else 0 for path, size in self._files())

    def _files(self) -> tuple[tuple[Path, int], tuple[Path, int]]:
        stem = f"{self.configuration}-{self.side}"
        return (self.kept / f"{stem}.pictures", PANELS * self.side**2), (self.kept / f"{stem}.answers", 1)


def scaled(images: Bytes, side: int) -> Bytes:
    """Panels with a smaller side, every pixel the mean of the area it covers.

    Shape: ``(…, 160, 160)`` to ``(…, side, side)``.
    """
    if side == images.shape[-1]:
        return images
    weights = _shares(side)
    return (weights @ images.astype(np.float32) @ weights.T + np.float32(0.5)).astype(np.uint8)


@lru_cache(maxsize=8)
def _shares(side: int) -> npt.NDArray[np.float32]:
    """What every old pixel along an axis contributes to every new one.

    Shape: ``(side, 160)``.
    """
    edges = np.arange(side + 1)[:, None] * (SIDE / side)
    covered = np.clip(edges - np.arange(SIDE), 0, 1)  # of every old pixel, before every edge
    shares: npt.NDArray[np.float32] = (np.diff(covered, axis=0) * (side / SIDE)).astype(np.float32)
    return shares


def _seen(side: int, path: Path) -> tuple[Bytes, int]:
    images, target = read(path)
    return scaled(images, side), target
