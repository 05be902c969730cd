"""A published file: where it comes from, where it is kept, and what it must hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boolit.lab.errors import UserError
from boolit.lab.folders import data_folder


class UnreadableError(ValueError):
    """What is wrong with a file, to be said after its name."""


def md5_of(content: bytes) -> str:
    """Of some archives nothing else was published. It tells damage, not malice: what is read is never run."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Member:
    """A file in an archive, by its path there: ``hashed`` of its content must be ``digest``, or raises `UnreadableError`."""

    name: str
    digest: str
    hashed: Callable[[bytes], str] = md5_of


@dataclass(frozen=True)
class Remote:
    """A file of a dataset. ``sha256`` and ``size`` (in bytes) are those of its content: of what a ``.gz`` holds.

    Two archives of the same bytes differ with the program that packed them, so mirrors and hand-filled folders do; what they
    hold does not. For the same reason a tarball with ``members`` is compared by those alone, and ``size`` is its own. The
    folder ``unpacked`` beside a file may take its place.
    """

    dataset: str
    file: str
    urls: tuple[str, ...]
    sha256: str
    size: int
    unpacked: str = ""
    members: tuple[Member, ...] = ()

    @property
    def path(self) -> Path:
        """Where the file is kept, or would be."""
        return data_folder() / self.dataset / self.file

    @property
    def kept(self) -> Path | None:
        """The file, or the folder in its place, if one is here."""
        folder = self.path.with_name(self.unpacked or self.file)
        return self.path if self.path.is_file() else folder if folder.is_dir() and self.unpacked else None

    @property
    def fix(self) -> str:
        """What to do where the file is missing or bad."""
        folder = f" or what it unpacks to, {self.unpacked}/," if self.unpacked else ""
        by_hand = f"put the published {self.file}{folder} into {self.path.parent}"
        return f"run `boolit data fetch {self.dataset}`, or {by_hand}" if self.urls else by_hand


def faulty(remote: Remote, path: Path, fault: str) -> UserError:
    """What is said of a bad copy."""
    return UserError(f"{path} {fault}; {remote.fix}")
