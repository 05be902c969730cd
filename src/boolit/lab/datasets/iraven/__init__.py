"""I-RAVEN (s:sran): which of eight panels completes a 3 × 3 matrix?

A sample is the number of a problem and the order of its panels; pixels are looked up last, in mapped memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
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
Bytes: TypeAlias = npt.NDArray[np.uint8]


class Iraven(Source):
    """The first ``problems`` of each configuration, generated with ``seed``, with panels scaled down to ``side``.

    Of ten problems, six are for training, two for validation and two for testing.
    """

    name: Literal["iraven"] = "iraven"
    configurations: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = tuple(LAYOUTS)
    problems: int = Field(10_000, ge=10, le=100_000)
    seed: int = Field(1234, ge=0)
    side: Literal[160, 80, 40, 20] = 160

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
        rows = {split: (first + numbers).flatten() for split, numbers in self._rows().items()}
        splits = {split: Split(stored_samples(numbers), targets[numbers]) for split, numbers in rows.items()}
        return Dataset(
            splits,
            "classes",
            CANDIDATES,
            encode=partial(look_up_panels, images),
            draw=shuffle_panels,
            extra_metrics=partial(configuration_accuracies, splits, self.configurations),
            input_shape=(PANELS, self.side, self.side),
        )

    def _rows(self) -> dict[str, Tensor]:
        """Return the numbers of the problems of each split."""
        numbers = torch.arange(self.problems)
        digit = numbers % 10
        return {"train": numbers[digit < 6], "valid": numbers[(digit == 6) | (digit == 7)], "test": numbers[digit > 7]}

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
    """Scale panels ``(…, 160, 160)`` down; every pixel is the mean of those that it covers."""
    factor = SIDE // side
    blocks = images.reshape(*images.shape[:-2], side, factor, side, factor)
    pixels: Bytes = (blocks.mean((-3, -1)) + 0.5).astype(np.uint8)
    return pixels


def look_up_panels(images: Sequence[Tensor], x: Tensor) -> Tensor:
    """Encode samples as gray levels from 0 to 255, given the images of all configurations.

    Shape: ``(…, 17)`` to ``(…, 16, side, side)``, float32.
    """
    # On the CPU, where the files are mapped: all panels together are gigabytes.
    rows, order = x.reshape(-1, 1 + PANELS).cpu().long().split([1, PANELS], 1)
    problems, _, *size = images[0].shape
    result = torch.empty(len(rows), PANELS, *size, dtype=torch.uint8)
    for number, stored in enumerate(images):
        inside = (rows.squeeze(1) // problems == number).nonzero().squeeze(1)
        panels = rows[inside] % problems * PANELS + order[inside]
        result[inside] = stored.flatten(0, 1).index_select(0, panels.flatten()).unflatten(0, panels.shape)
    return result.to(x.device).float().view(*x.shape[:-1], PANELS, *size)


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
    splits: Mapping[str, Split], configurations: Sequence[str], split: str, outputs: Tensor
) -> dict[str, Tensor]:
    """Return the accuracy on each configuration; each has the same number of samples, one after the other.

    Shape: ``(runs, samples, 8)`` to ``(runs,)`` each.
    """
    right = (outputs.max(-1).indices == splits[split].y.to(outputs.device)).double()
    parts = right.chunk(len(configurations), 1)
    return {f"accuracy_{name}": part.mean(1) for name, part in zip(configurations, parts, strict=True)}
