"""Datasets that somebody published, as opposed to those we generate."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import ClassVar

from boolit.lab.data._dataset import Source, Task
from boolit.lab.data._remote import Remote


class Published(Source, ABC):
    """What is known of a dataset before it is here: ``samples`` by split (with the default options), where it comes from, its
    licence, and the files to fetch; none if ``package`` brings it along.
    """

    task: ClassVar[Task]
    samples: ClassVar[Mapping[str, int]]
    home: ClassVar[str]
    licence: ClassVar[str]
    remotes: ClassVar[tuple[Remote, ...]] = ()
    package: ClassVar[str | None] = None
