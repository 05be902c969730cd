"""I-RAVEN: which of eight panels completes a 3 × 3 matrix? (s:sran)"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from filelock import FileLock
from pydantic import Field, field_validator, model_validator

from boolit.errors import UserError
from boolit.lab.common.files import data_folder, read_bounded
from boolit.lab.common.progress import count_progress
from boolit.lab.datasets.base import Dataset, Description, Source
from boolit.lab.datasets.raven.configurations import CONFIGURATIONS, configuration_named
from boolit.lab.datasets.raven.drawing import SIDE
from boolit.lab.datasets.raven.files import (
    CANDIDATES,
    NAME,
    PANELS,
    file_name,
    generate,
    missing_problems,
    problem_folder,
)
from boolit.lab.datasets.raven.samples import (
    Arrays,
    LazySplit,
    PanelLookup,
    ProblemFiles,
    configuration_accuracies,
    shuffle_panels,
    stored_samples,
)

FILE_SPLITS = {"train": "train", "valid": "val", "test": "test"}  # our names, and those in the names of files
MIN_PROBLEMS = 10  # of which all splits have some


class Iraven(Source):
    """The first ``problems`` of each configuration, generated with ``seed`` where they are missing, every panel scaled to
    ``side``. Of ten, six are for training, two for validation and two for testing.

    With a ``folder``, the problems in it instead: the published files, or any in their format. ``digest`` is the hash of their
    names and sizes and of one whole file per configuration, computed if it is not given; it is part of every run's key.
    """

    name: Literal["iraven"] = "iraven"
    configurations: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = tuple(CONFIGURATIONS)
    problems: int = Field(10_000, ge=MIN_PROBLEMS, le=100_000)
    seed: int = Field(1234, ge=0)
    side: int = Field(SIDE, ge=8, le=SIDE)
    folder: str | None = None
    digest: str | None = None

    @field_validator("configurations")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            configuration_named(name)
        if len(set(names)) < len(names):
            raise ValueError(f"a configuration is named twice in {', '.join(names)}; name each once")
        return names

    @model_validator(mode="before")
    @classmethod
    def _add_digest(cls, options: Any) -> Any:
        if isinstance(options, dict) and options.get("digest") is None and isinstance(options.get("folder"), str):
            return options | {"digest": folder_digest(Path(options["folder"]))}
        return options

    def prepare(self) -> None:
        self._arrays(shown=True)

    def describe(self) -> Description:
        names = [name for part in self._files() for name in part.names]
        samples = {ours: sum(name.endswith(f"_{theirs}.npz") for name in names) for ours, theirs in FILE_SPLITS.items()}
        metrics = tuple(f"accuracy_{name}" for name in self.configurations)
        return Description((PANELS, self.side, self.side), CANDIDATES, "classes", samples, metrics)

    def load(self) -> Dataset:
        files = self._files()
        names = [name for part in files for name in part.names]
        sizes = [len(part.names) for part in files]
        owner = torch.repeat_interleave(torch.tensor(sizes))
        rows = {
            ours: torch.tensor([row for row, name in enumerate(names) if name.endswith(f"_{theirs}.npz")])
            for ours, theirs in FILE_SPLITS.items()
        }
        panels = PanelLookup(partial(self._arrays, shown=False), sizes)
        splits = {split: LazySplit(stored_samples(own), partial(panels.targets, own)) for split, own in rows.items()}
        owners = {split: owner[own] for split, own in rows.items()}
        return Dataset(
            splits,
            "classes",
            CANDIDATES,
            encode=panels,
            draw=shuffle_panels,
            extra_metrics=partial(configuration_accuracies, splits, owners, self.configurations),
            input_shape=(PANELS, self.side, self.side),
        )

    @property
    def _folder(self) -> Path:
        """The folder of generated problems, and of the arrays read from any."""
        return problem_folder(self.seed) if self.folder is None else data_folder() / "iraven" / f"folder-{self.digest}"

    def _files(self) -> list[ProblemFiles]:
        origin = self._folder if self.folder is None else Path(self.folder)
        kept = self._folder / "mapped"
        return [ProblemFiles(name, origin / name, self._names(origin / name), kept, self.side) for name in self.configurations]

    def _names(self, folder: Path) -> list[str]:
        if self.folder is None:
            return [file_name(index) for index in range(self.problems)]
        numbered = {int(match[1]): match[0] for match in map(NAME.fullmatch, _list_files(folder)) if match}
        names = [name for index, name in sorted(numbered.items()) if index < self.problems]
        for split in FILE_SPLITS.values():
            if not any(name.endswith(f"_{split}.npz") for name in names):
                raise UserError(
                    f"{folder} has no file RAVEN_<number>_{split}.npz with a number below {self.problems}; put the problems of "
                    f"{folder.name} there, or leave it out of data.configurations"
                )
        return names

    def _arrays(self, shown: bool) -> Arrays:
        files = self._files()
        if any(part.unread for part in files):
            self._folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self._folder / "lock"):
                self._read([part for part in files if part.unread], shown)
        return [part.map_memory() for part in files]

    def _read(self, files: list[ProblemFiles], shown: bool) -> None:
        with count_progress(shown, lines=False) as begin:
            if self.folder is None:
                names = [part.configuration for part in files]
                lacking = sum(len(missing_problems(self._folder, name, self.problems)) for name in names)
                generate(self._folder, names, self.problems, self.seed, begin("making problems", lacking))
            advance = begin("reading problems", sum(part.unread for part in files))
            for part in files:
                part.read(advance)


def folder_digest(folder: Path) -> str:
    """The hash of the names and sizes of the problems in a folder, and of the first file of every configuration.

    Reading all of them at every start would take minutes.
    """
    digest = hashlib.sha256()
    for own in (folder / name for name in CONFIGURATIONS):
        names = sorted(name for name in _list_files(own) if NAME.fullmatch(name)) if own.is_dir() else []
        for name in names:
            digest.update(f"{own.name}/{name} {(own / name).stat().st_size}\n".encode())
        if names:
            digest.update(read_bounded(own / names[0]))
    return digest.hexdigest()[:16]


def _list_files(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        raise UserError(
            f"{folder} cannot be read ({error.strerror or error}); data.folder is one with a folder for each configuration"
        ) from None
