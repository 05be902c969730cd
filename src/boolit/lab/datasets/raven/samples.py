"""Problems of I-RAVEN as samples: which problem, and the order of its panels; pixels are looked up last, in mapped memory.

A configuration has two files with one row per problem: images scaled to some side, and answers. The shorter one says how many
problems are complete, so that a killed process loses one problem at most, and more problems of the same set are appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.parallel import map_in_threads
from boolit.lab.common.progress import Advance
from boolit.lab.common.random import uniform
from boolit.lab.datasets.base import Split
from boolit.lab.datasets.raven.drawing import SIDE
from boolit.lab.datasets.raven.files import CANDIDATES, PANELS, read_problem

CONTEXT = PANELS - CANDIDATES
ROW = 3  # panels
Bytes: TypeAlias = npt.NDArray[np.uint8]
Arrays: TypeAlias = Sequence[tuple[Tensor, Tensor]]  # images and answers of every configuration


class LazySplit(Split):
    """A split whose targets are in files that may not exist yet: they are read on first access."""

    def __init__(self, x: Tensor, targets: Callable[[], Tensor]) -> None:
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "_targets", targets)

    @cached_property
    def y(self) -> Tensor:
        """The targets."""
        targets: Tensor = self.__dict__["_targets"]()
        return targets


class PanelLookup:
    """The images of samples, from arrays that are made or mapped when the first one is needed: grey levels from 0 to 255.

    Shape: ``(…, 17)`` to ``(…, 16, side, side)``, float32.
    """

    def __init__(self, arrays: Callable[[], Arrays], sizes: Sequence[int]) -> None:
        self._make, self._sizes = arrays, sizes

    @cached_property
    def arrays(self) -> Arrays:
        """Those of all configurations."""
        return self._make()

    def targets(self, rows: Tensor) -> Tensor:
        """The numbers of the right candidates of some problems.

        Shape: ``(n,)``.
        """
        return torch.cat([answers for _, answers in self.arrays])[rows].long()

    def __call__(self, x: Tensor) -> Tensor:
        # Looked up where the files are mapped: all panels together are gigabytes.
        rows, order = x.reshape(-1, 1 + PANELS).cpu().split([1, PANELS], 1)
        side = self.arrays[0][0].shape[-1]
        result = torch.empty(len(rows), PANELS, side, side, dtype=torch.uint8)
        first = 0
        for (images, _), size in zip(self.arrays, self._sizes, strict=True):
            mine = ((rows >= first) & (rows < first + size)).squeeze(1).nonzero().squeeze(1)
            numbers = (rows[mine].long() - first) * PANELS + order[mine]
            result[mine] = images.view(-1, side, side).index_select(0, numbers.flatten()).view(-1, PANELS, side, side)
            first += size
        return result.to(x.device).float().view(*x.shape[:-1], PANELS, side, side)


def stored_samples(rows: Tensor) -> Tensor:
    """Samples of some problems, with their panels in the order of the file.

    Shape: ``(n,)`` to ``(n, 17)``, int32: the row, and the number of the panel at each of the 16 places.
    """
    order = torch.arange(PANELS, dtype=torch.int32).expand(len(rows), -1)
    return torch.cat([rows.to(torch.int32).unsqueeze(1), order], 1)


def shuffle_panels(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The problems of a training step: candidates in random order, and the first two rows of the matrix swapped or not.

    Shape: ``(runs, batch, 17)`` and ``(runs, batch)``, both unchanged.
    """
    numbers = uniform(run_keys, step, (x.shape[1], CANDIDATES + 1))
    candidates = numbers[..., :CANDIDATES].argsort(-1)
    straight = torch.arange(CONTEXT, device=x.device)
    swapped = torch.cat([straight[ROW : 2 * ROW], straight[:ROW], straight[2 * ROW :]])
    context = torch.where(numbers[..., CANDIDATES:] < 0.5, swapped, straight)
    places = torch.cat([torch.zeros_like(context[..., :1]), 1 + context, 1 + CONTEXT + candidates], -1)
    return x.gather(-1, places), (candidates == y.unsqueeze(-1)).int().argmax(-1)


def configuration_accuracies(
    splits: Mapping[str, Split], owners: Mapping[str, Tensor], configurations: Sequence[str], split: str, outputs: Tensor
) -> dict[str, Tensor]:
    """The accuracy on the problems of each configuration; ``owners`` has the configuration's number for every sample.

    Shape: ``(runs, samples, 8)`` to ``(runs,)`` each.
    """
    hits = (outputs.max(-1).indices == splits[split].y.to(outputs.device)).double()
    of_split = owners[split].to(outputs.device)
    return {f"accuracy_{name}": hits[:, of_split == number].mean(1) for number, name in enumerate(configurations)}


@dataclass(frozen=True)
class ProblemFiles:
    """The problems of a configuration: files with some names in a folder, and the arrays read from them in ``kept``."""

    configuration: str
    folder: Path
    names: Sequence[str]
    kept: Path
    side: int

    @property
    def unread(self) -> int:
        """How many are not in the arrays yet; the files of the others are no longer needed."""
        return max(0, len(self.names) - self._done())

    def read(self, advance: Advance) -> None:
        """Reads what is not in the arrays yet."""
        done = self._done()
        try:
            self.kept.mkdir(parents=True, exist_ok=True)
            for path, bytes_of_a_row in self._files():
                with path.open("ab") as file:
                    file.truncate(done * bytes_of_a_row)
            self._append([self.folder / name for name in self.names[done:]], advance)
        except OSError as error:
            need = f"{len(self.names) * self._files()[0][1] / 1e6:,.0f} MB of images"
            raise UserError(
                f"{need} cannot be kept in {self.kept} ({error.strerror or error}); make room there, or set BOOLIT_DATA to "
                "another folder"
            ) from None

    def map_memory(self) -> tuple[Tensor, Tensor]:
        """The images and the answers.

        Shape: ``(problems, 16, side, side)`` and ``(problems,)``, bytes.
        """
        images, answers = (
            # Copy-on-write, as torch has no read-only tensors.
            torch.from_numpy(np.memmap(path, np.uint8, "c", shape=(len(self.names), bytes_of_a_row)))
            for path, bytes_of_a_row in self._files()
        )
        return images.view(-1, PANELS, self.side, self.side), answers.squeeze(1)

    def _append(self, paths: Sequence[Path], advance: Advance) -> None:
        (images_path, _), (answers_path, _) = self._files()
        with images_path.open("ab") as image_file, answers_path.open("ab", buffering=0) as answer_file:
            for images, target in map_in_threads(partial(_read_scaled, self.side), paths):
                image_file.write(images.tobytes())
                answer_file.write(bytes([target]))
                advance(1)

    def _done(self) -> int:
        return min(path.stat().st_size // size if path.is_file() else 0 for path, size in self._files())

    def _files(self) -> tuple[tuple[Path, int], tuple[Path, int]]:
        stem = f"{self.configuration}-{self.side}"
        return (self.kept / f"{stem}.pictures", PANELS * self.side**2), (self.kept / f"{stem}.answers", 1)


def downscale(images: Bytes, side: int) -> Bytes:
    """Panels with a smaller side, every pixel the mean of the area it covers.

    Shape: ``(…, 160, 160)`` to ``(…, side, side)``.
    """
    if side == images.shape[-1]:
        return images
    weights = _area_weights(side)
    return (weights @ images.astype(np.float32) @ weights.T + np.float32(0.5)).astype(np.uint8)


@lru_cache(maxsize=8)
def _area_weights(side: int) -> npt.NDArray[np.float32]:
    """The weight of every old pixel along an axis in every new one.

    Shape: ``(side, 160)``.
    """
    edges = np.arange(side + 1)[:, None] * (SIDE / side)
    covered = np.clip(edges - np.arange(SIDE), 0, 1)  # of every old pixel, before every edge
    weights: npt.NDArray[np.float32] = (np.diff(covered, axis=0) * (side / SIDE)).astype(np.float32)
    return weights


def _read_scaled(side: int, path: Path) -> tuple[Bytes, int]:
    images, target = read_problem(path)
    return downscale(images, side), target
