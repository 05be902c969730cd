"""I-RAVEN (s:sran): which of eight panels completes a 3 × 3 matrix?

A sample is the number of a problem and the order of its panels; pixels are looked up last, in mapped memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from pydantic import Field, field_validator
from torch import Tensor

from boolit.lab.common.files import atomic_write, data_folder
from boolit.lab.common.progress import count_progress
from boolit.lab.common.random import uniform
from boolit.lab.datasets.base import Dataset, Description, Source, Split
from boolit.lab.datasets.iraven.drawing import SIDE, draw_problem
from boolit.lab.datasets.iraven.problems import CANDIDATES, make_problem
from boolit.lab.datasets.iraven.rules import LAYOUTS

VERSION = 2  # to be increased whenever a seed generates other problems
PANELS, CONTEXT, ROW = 16, 8, 3
SPLIT_OF_DIGIT = ("train",) * 6 + ("valid",) * 2 + ("test",) * 2  # of the last digit of a problem's number
Bytes: TypeAlias = npt.NDArray[np.uint8]


class Iraven(Source):
    """The first ``problems`` of each configuration, generated with ``seed``, with panels scaled to ``side``.

    Of ten problems, six are for training, two for validation and two for testing.
    """

    name: Literal["iraven"] = "iraven"
    configurations: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = tuple(LAYOUTS)
    problems: int = Field(10_000, ge=10, le=100_000)
    seed: int = Field(1234, ge=0)
    side: int = Field(SIDE, ge=8, le=SIDE)

    @field_validator("configurations")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in LAYOUTS or names.count(name) > 1:
                raise ValueError(f"{name!r} is unknown or named twice; name each once, out of {', '.join(LAYOUTS)}")
        return names

    def describe(self) -> Description:
        samples = {split: len(self.configurations) * len(rows) for split, rows in self._rows().items()}
        metrics = tuple(f"accuracy_{name}" for name in self.configurations)
        return Description((PANELS, self.side, self.side), CANDIDATES, "classes", samples, metrics)

    def load(self) -> Dataset:
        images, answers = zip(*map(self._stored, self.configurations), strict=True)
        targets = torch.cat(answers).long()
        first = self.problems * torch.arange(len(images)).unsqueeze(1)  # row of each configuration
        splits, places = {}, {}
        for split, numbers in self._rows().items():
            rows = (first + numbers).flatten()
            splits[split], places[split] = Split(stored_samples(rows), targets[rows]), rows // self.problems
        return Dataset(
            splits,
            "classes",
            CANDIDATES,
            encode=partial(look_up_panels, images),
            draw=shuffle_panels,
            extra_metrics=partial(configuration_accuracies, splits, places, self.configurations),
            input_shape=(PANELS, self.side, self.side),
        )

    def _rows(self) -> dict[str, Tensor]:
        """Return the numbers of the problems of each split."""
        numbers = range(self.problems)
        names = dict.fromkeys(SPLIT_OF_DIGIT)
        return {split: torch.tensor([n for n in numbers if SPLIT_OF_DIGIT[n % 10] == split]) for split in names}

    def _stored(self, configuration: str) -> tuple[Tensor, Tensor]:
        """Return images ``(problems, 16, side, side)`` and answers ``(problems,)`` in mapped memory, made on first use."""
        kept = data_folder() / "iraven" / f"{self.seed}-v{VERSION}"
        files = kept / f"{configuration}-{self.side}-{self.problems}"
        kept.mkdir(parents=True, exist_ok=True)
        with FileLock(kept / "lock"):
            if not files.is_dir():
                with atomic_write(files) as part, count_progress() as begin:
                    part.mkdir()
                    advance = begin(f"problems of {configuration}", self.problems)
                    shape = (self.problems, PANELS, self.side, self.side)
                    images = np.lib.format.open_memmap(part / "images.npy", "w+", np.uint8, shape)
                    answers = np.empty(self.problems, np.uint8)
                    for number in range(self.problems):
                        problem = make_problem(configuration, self.seed, number)
                        images[number], answers[number] = downscale(draw_problem(problem), self.side), problem.target
                        advance(1)
                    images.flush()
                    np.save(part / "answers.npy", answers)
        images, answers = (np.load(files / name, mmap_mode="c") for name in ("images.npy", "answers.npy"))  # copy-on-write
        return torch.from_numpy(images), torch.from_numpy(answers)


def downscale(images: Bytes, side: int) -> Bytes:
    """Scale panels ``(…, 160, 160)`` down; every pixel is the mean of the area that it covers."""
    if side == images.shape[-1]:
        return images
    weights = _area_weights(side)
    return (weights @ images.astype(np.float32) @ weights.T + np.float32(0.5)).astype(np.uint8)


@lru_cache(maxsize=8)
def _area_weights(side: int) -> npt.NDArray[np.float32]:
    """Return the weight of every old pixel along an axis in every new one, of shape ``(side, 160)``."""
    edges = np.arange(side + 1)[:, None] * (SIDE / side)
    covered = np.clip(edges - np.arange(SIDE), 0, 1)  # the share of every old pixel before every edge
    weights: npt.NDArray[np.float32] = (np.diff(covered, axis=0) * (side / SIDE)).astype(np.float32)
    return weights


def look_up_panels(images: Sequence[Tensor], x: Tensor) -> Tensor:
    """Encode samples as gray levels from 0 to 255, given the images of all configurations.

    Shape: ``(…, 17)`` to ``(…, 16, side, side)``, float32.
    """
    # On the CPU, where the files are mapped: all panels together are gigabytes.
    rows, order = x.reshape(-1, 1 + PANELS).cpu().split([1, PANELS], 1)
    side = images[0].shape[-1]
    result = torch.empty(len(rows), PANELS, side, side, dtype=torch.uint8)
    first = 0
    for stored in images:
        inside = ((rows >= first) & (rows < first + len(stored))).squeeze(1).nonzero().squeeze(1)
        numbers = (rows[inside].long() - first) * PANELS + order[inside]
        result[inside] = stored.view(-1, side, side).index_select(0, numbers.flatten()).view(-1, PANELS, side, side)
        first += len(stored)
    return result.to(x.device).float().view(*x.shape[:-1], PANELS, side, side)


def stored_samples(rows: Tensor) -> Tensor:
    """Return samples of problems with their panels in the order of the file.

    Shape: ``(n,)`` to ``(n, 17)``, int32: the row, and the number of the panel at each of the 16 places.
    """
    order = torch.arange(PANELS, dtype=torch.int32).expand(len(rows), -1)
    return torch.cat([rows.to(torch.int32).unsqueeze(1), order], 1)


def shuffle_panels(x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Shuffle the candidates, and swap the first two rows of the matrix with probability 1/2.

    Shape: ``(runs, batch, 17)`` and ``(runs, batch)``, unchanged.
    """
    numbers = uniform(run_keys, step, (x.shape[1], CANDIDATES + 1))
    candidates = numbers[..., :CANDIDATES].argsort(-1)
    straight = torch.arange(CONTEXT, device=x.device)
    swapped = torch.cat([straight[ROW : 2 * ROW], straight[:ROW], straight[2 * ROW :]])
    context = torch.where(numbers[..., CANDIDATES:] < 0.5, swapped, straight)
    places = torch.cat([torch.zeros_like(context[..., :1]), 1 + context, 1 + CONTEXT + candidates], -1)
    return x.gather(-1, places), (candidates == y.unsqueeze(-1)).int().argmax(-1)


def configuration_accuracies(
    splits: Mapping[str, Split], places: Mapping[str, Tensor], configurations: Sequence[str], split: str, outputs: Tensor
) -> dict[str, Tensor]:
    """Return the accuracy on each configuration. ``places`` has the place in ``configurations`` of every sample, by split.

    Shape: ``(runs, samples, 8)`` to ``(runs,)`` each.
    """
    hits = (outputs.max(-1).indices == splits[split].y.to(outputs.device)).double()
    place = places[split].to(outputs.device)
    return {f"accuracy_{name}": hits[:, place == number].mean(1) for number, name in enumerate(configurations)}
