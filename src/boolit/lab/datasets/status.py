"""Which datasets there are, which are here, and whether their files are what was published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.progress import Progress

from boolit.errors import UserError, user_input
from boolit.lab.common.progress import byte_progress
from boolit.lab.datasets import dataset_names, load, source_type
from boolit.lab.datasets.base import Source, Task
from boolit.lab.datasets.download.fetch import FileBar, fetch
from boolit.lab.datasets.download.published import Provenance, PublishedDataset, PublishedFile, verify_file
from boolit.lab.datasets.features.weights import NAME as WEIGHTS
from boolit.lab.datasets.features.weights import Weights, own_resnet18, resnet18_here

State = Literal["whole", "unpacked", "own", "fetched", "replaced", "missing", "bad"]
MODULES = {"scikit-learn": "sklearn"}


@dataclass(frozen=True)
class DatasetStatus:
    """A dataset with its default options, or the weights, which are no dataset (``kind`` is none)."""

    name: str
    kind: type[Source] | None

    @property
    def published(self) -> type[Provenance] | None:
        """Where it comes from, if somebody published it."""
        if self.kind is None:
            return Weights
        return self.kind if issubclass(self.kind, PublishedDataset) else None

    @property
    def own(self) -> bool:
        """Whether it stands for data of the user's: it has options without a default, as the path of a file."""
        return self.kind is not None and any(option.is_required() for option in self.kind.model_fields.values())

    @cached_property
    def task_and_samples(self) -> tuple[Task | None, Mapping[str, int]]:
        """What is asked of a network, and how many samples each split has; a generated one is made to see."""
        if self.kind is None or self.own:
            return None, {}
        if issubclass(self.kind, PublishedDataset):
            return self.kind.task, self.kind.samples
        made = load(self.kind.model_validate({"name": self.name}))
        return made.task, {name: len(split) for name, split in made.splits.items()}

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """The files to fetch."""
        return self.published.files if self.published else ()

    @property
    def here(self) -> bool:
        """Whether it can be loaded without a network."""
        if self.kind is None:
            return resnet18_here()
        package = self.published.package if self.published else None
        installed = package is None or find_spec(MODULES[package]) is not None
        return installed and all(file.kept for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        published = self.published
        task, samples = self.task_and_samples
        return {
            "name": self.name,
            "task": task,
            "samples": dict(samples),
            "here": self.here,
            "generated": published is None and not self.own,
            "package": published.package if published else None,
            "home": published.home if published else None,
            "licence": published.licence if published else None,
            "files": [{"path": str(file.path), "bytes": file.size, "urls": list(file.urls)} for file in self.files],
        }


@dataclass(frozen=True)
class FileState:
    """A file after it was looked for: ``fault`` says what is wrong with a bad one, and what to do.

    ``own`` is a file of the user's that stands in for the published one.
    """

    file: PublishedFile
    state: State
    fault: str | None = None
    own: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        path = str(self.own or self.file.path)
        return {"dataset": self.file.dataset, "file": path, "state": self.state, "fault": self.fault}


def dataset_statuses(names: Sequence[str] = ()) -> list[DatasetStatus]:
    """The datasets with some names, or all, and the weights."""
    with user_input():
        return [
            DatasetStatus(name, None if name == WEIGHTS else source_type(name)) for name in names or [*dataset_names(), WEIGHTS]
        ]


def file_state(file: PublishedFile) -> FileState:
    """Reads a file through, if it is here.

    A folder of images in its place, or a file of the user's own, cannot be compared: nothing was published of it.
    """
    kept = file.kept
    if kept is None:
        own = own_resnet18() if file in Weights.files else None
        return FileState(file, "own" if own else "missing", own=own)
    try:
        verify_file(file, kept)
    except UserError as error:
        return FileState(file, "bad", str(error))
    return FileState(file, "unpacked" if kept.is_dir() and not file.members else "whole")


def fetch_files(files: Sequence[PublishedFile]) -> list[FileState]:
    """Downloads what is missing or bad and has an address; the rest stays."""
    with byte_progress() as bars:
        return [_fetch_file(file, bars) for file in files]


def _fetch_file(file: PublishedFile, bars: Progress) -> FileState:
    found = file_state(file)
    if found.state in ("whole", "unpacked") or not file.urls:
        return found
    fetch(file, FileBar(bars, file.name))
    return FileState(file, "replaced" if found.state == "bad" else "fetched")
