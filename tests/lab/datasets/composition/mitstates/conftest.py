"""Files as Lua's Torch writes them, and a small MIT-States."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from boolit.lab.models.resnet18 import Resnet18

PAIRS = {
    "train": ["old bear", "old cat", "wet bear", "wet dog", "tiny dog"],
    "val": ["old bear", "tiny bear"],
    "test": ["wet dog", "wet cat", "tiny cat"],
}
OF_A_PAIR = {"train": 2, "val": 1, "test": 1}
SIDES = (40, 32)  # wider than high, and as much so as 320 is to 256


@pytest.fixture(scope="session")
def t7() -> Callable[[Any], bytes]:
    """What writes a value."""
    return written


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder mit-states, a file of word vectors and one of weights that nobody trained."""
    home = tmp_path_factory.mktemp("files")
    records, number = [], count(1)
    for split, pairs in PAIRS.items():
        for pair in pairs:
            for _ in range(OF_A_PAIR[split]):
                records.append(_picture(home / "mit-states" / "images", pair, split, next(number)))
    records += [_picture(home / "mit-states" / "images", "NA bear", "train", next(number))]
    records += [_picture(home / "mit-states" / "images", pair, split, next(number)) for pair, split in NOT_TAKEN]
    (home / "mit-states" / "metadata_compositional-split-natural.t7").write_bytes(written(dict(enumerate(records, start=1))))
    (home / "mit-states" / "compositional-split-natural").mkdir()
    for split, pairs in PAIRS.items():
        lines = "\n".join(pairs) + "\n"
        (home / "mit-states" / "compositional-split-natural" / f"{split}_pairs.txt").write_text(lines)
    words = ["old", "wet", "tiny", "bear", "cat", "dog"]
    (home / "words.txt").write_text("".join(f"{word} {n} {n / 2} -1e-1\n" for n, word in enumerate(words, start=1)))
    torch.manual_seed(0)
    torch.save(Resnet18().state_dict(), home / "weights.pth")
    return home


NOT_TAKEN = [("old dog", "NA"), ("old dog", "train"), ("tiny cat", "train")]  # in no set, listed nowhere, another set's


def _picture(images: Path, pair: str, split: str, number: int) -> dict[str, str]:
    folder = images / pair  # with a blank, as published
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (SIDES[1], SIDES[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / f"{number}.png")
    attribute, thing = pair.split()
    return {"image": f"{pair.replace(' ', '_')}/{number}.png", "attr": attribute, "obj": thing, "set": split}


def written(value: Any) -> bytes:
    """A file with one value: None, numbers, texts, booleans, and dicts; a dict that comes twice is written once."""
    indices, fresh = dict[int, int](), count(1)

    def each(value: Any) -> bytes:
        if value is None:
            return integer(0)
        if isinstance(value, bool):
            return integer(5) + integer(value)
        if isinstance(value, int | float):
            return integer(1) + struct.pack("<d", value)
        if isinstance(value, str | bytes):
            content = value.encode() if isinstance(value, str) else value
            return integer(2) + integer(len(content)) + content
        if id(value) in indices:
            return integer(3) + integer(indices[id(value)])
        indices[id(value)] = next(fresh)
        head = integer(3) + integer(indices[id(value)]) + integer(len(value))
        return head + b"".join(each(key) + each(entry) for key, entry in value.items())

    return each(value)


def integer(value: int) -> bytes:
    """As a file has it."""
    return struct.pack("<i", value)
