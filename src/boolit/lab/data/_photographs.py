"""Photographs in files as an encoder sees them once: the middle of each, decoded when it is wanted, so that none is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from boolit.lab.data._dataset import Split
from boolit.lab.data._decoding import decoded_picture
from boolit.lab.data._gallery import Gallery, Piece
from boolit.lab.errors import UserError
from boolit.lab.files import name_bytes, read_bounded

SCALED, SEEN = 256, 224  # the shorter side of a picture, and the side of the square that is cut from its middle


@dataclass(frozen=True)
class Photographs(Gallery):
    """Files by split, none of which is augmented."""

    files: Mapping[str, Sequence[Path]]

    @staticmethod
    def of(files: Mapping[str, Sequence[Path]]) -> Photographs:
        """All files of some splits."""
        splits = {name: Split(rows := torch.arange(len(paths)), rows) for name, paths in files.items()}
        return Photographs(splits, SEEN, flip=False, seed=0, files=files)

    @property
    def whole(self) -> list[str]:
        return list(self.splits)

    def count(self, views: int) -> int:  # noqa: ARG002 (each picture is seen once)
        return sum(map(len, self.splits.values()))

    def seen(self, piece: Piece) -> Tensor:
        edge = (SCALED - SEEN) // 2
        pictures = [_decoded(self.files[piece.split][row]) for row in piece.rows]
        return torch.stack(pictures)[..., edge : edge + SEEN, edge : edge + SEEN].contiguous()

    def identity(self) -> str:
        """What tells these files from others: names, sizes and times."""
        digest = hashlib.sha256()
        for split, paths in self.files.items():
            for path in paths:
                state = _state(path)
                digest.update(name_bytes(f"{split}\n{path.parent.name}/{path.name}\n{state}\n"))
        return digest.hexdigest()


def _decoded(path: Path) -> Tensor:
    try:
        content = read_bounded(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    return torch.from_numpy(decoded_picture(content, str(path), SCALED))


def _state(path: Path) -> str:
    try:
        state = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None
    return f"{state.st_size} {state.st_mtime_ns}"


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"the picture {path} cannot be read ({error.strerror}); put the whole set there")
