"""What the user wants of a table."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from boolit.lab.errors import UserError
from boolit.lab.files import regular_file
from boolit.saved.description import TableTask

DIGEST_DIGITS = 16
PIECE_BYTES = 2**20
VERSION = 1  # raised when the same wishes would be prepared differently


@dataclass(frozen=True)
class Wanted:
    """A table, its target, and how it is cut and prepared; ``digest`` is of its contents.

    ``test`` is the share of all rows that is tested on, ``validation`` that of the others which is validated on. A category
    has at most ``levels`` features besides the one for any other text.
    """

    path: str
    digest: str
    target: str
    task: TableTask | None = None
    test: float = 0.2
    validation: float = 0.2
    levels: int = 20
    drop: tuple[str, ...] = ()
    seed: int = 0

    @property
    def key(self) -> str:
        """What it is kept under: not the path, for a table may move."""
        wishes = {name: value for name, value in asdict(self).items() if name != "path"} | {"version": VERSION}
        return hashlib.sha256(json.dumps(wishes, sort_keys=True).encode()).hexdigest()[:DIGEST_DIGITS]


def digest_of(path: Path) -> str:
    """The hash of a file's contents, so that a changed table is another one."""
    try:
        digest = hashlib.sha256()
        with regular_file(path, "give the file of a table").open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
    except FileNotFoundError:
        raise UserError(f"there is no table {path}; check the path") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}); give the file of a table") from None
    return digest.hexdigest()[:DIGEST_DIGITS]
