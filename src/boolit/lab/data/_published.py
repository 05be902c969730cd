"""Datasets, and other files, that somebody published, as opposed to those we generate."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import ClassVar

from boolit.lab.data._dataset import Source, Task
from boolit.lab.data._remote import Remote


class Origin:
    """Where something comes from, its licence, and the files to fetch; none if ``package`` brings it along."""

    home: ClassVar[str]
    licence: ClassVar[str]
    remotes: ClassVar[tuple[Remote, ...]] = ()
    package: ClassVar[str | None] = None


class Published(Source, Origin, ABC):
    """What is known of a dataset before it is here: ``samples`` by split (with the default options), and its origin."""

    task: ClassVar[Task]
    samples: ClassVar[Mapping[str, int]]
