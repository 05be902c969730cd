"""Word vectors from a text file with a word and its numbers on each line, such as GloVe's."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, cache_key, data_folder, regular_file
from boolit.lab.common.progress import byte_progress
from boolit.lab.common.random import generator
from boolit.lab.datasets.download import DAMAGE

Missing: TypeAlias = Literal["error", "random"]
Vectors: TypeAlias = dict[str, Tensor]
VERSION = 1  # to be increased whenever other vectors are made of a file
SEPARATORS = re.compile(r"[\s_.\-]+")  # between the words of a name


@dataclass(frozen=True)
class WordFile:
    """A text file of vectors, or ``member`` of a zip file.

    ``missing`` says what happens to a name without a known word: an error, or a random vector drawn with ``seed`` and the name
    that has the standard deviation of the others. ``verify`` is called before the file is read.
    """

    path: Path
    member: str | None = None
    missing: Missing = "error"
    seed: int = 0
    verify: Callable[[], None] = lambda: None

    def vectors(self, names: Sequence[str]) -> Tensor:
        """Return a vector for each name: that of the name in lower case, else the mean of its words. The result is cached.

        Shape: ``(names, size)``.
        """
        try:
            state = regular_file(self.path).stat()
        except OSError as error:
            raise UserError(f"there are no word vectors in {self} ({error.strerror}); check the path") from None
        facts = (VERSION, self.path.name, self.member, state.st_size, state.st_mtime_ns, self.missing, self.seed, *names)
        kept = data_folder() / "vectors" / f"{cache_key(*facts)}.safetensors"
        try:
            return load_file(kept)["vectors"]
        except (OSError, SafetensorError, KeyError):
            self.verify()
            vectors = self._combine(names, self._read({word for name in names for word in (name.lower(), *split_words(name))}))
        with suppress(OSError, SafetensorError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(kept) as part:
                save_file({"vectors": vectors}, part)
        return vectors

    def _combine(self, names: Sequence[str], known: Vectors) -> Tensor:
        if not known:
            raise UserError(f"{self} has none of the {len(names)} names, such as {names[0]!r}; give a file of word vectors")
        size, deviation = len(next(iter(known.values()))), float(torch.stack(list(known.values())).std())
        vectors: Vectors = {}
        for name in names:
            parts = [known[word] for word in split_words(name) if word in known]
            if name.lower() in known:
                vectors[name] = known[name.lower()]
            elif parts:
                vectors[name] = torch.stack(parts).mean(0)
        unknown = [name for name in names if name not in vectors]
        if unknown and self.missing == "error":
            rule = f"{self} has no vector for {unknown[0]!r} ({len(unknown)} of {len(names)} names)"
            raise UserError(f"{rule}; add one, or set missing = 'random'")
        for name in unknown:
            vectors[name] = deviation * torch.randn(size, generator=generator(self.seed, "word", name))
        return torch.stack([vectors[name] for name in names])

    def _read(self, words: set[str]) -> Vectors:
        encoded = {word.encode(): word for word in words}
        vectors: Vectors = {}
        with self._open() as file:
            for number, line in enumerate(file, start=1):
                word, _, numbers = line.strip().partition(b" ")
                header = number == 1 and word.isdigit() and numbers.isdigit()  # number of words and of dimensions
                if word in encoded and not header:
                    vectors[encoded[word]] = self._parse(numbers, number)
        if len({len(vector) for vector in vectors.values()}) > 1:
            raise UserError(f"{self} has vectors of different sizes; give a file of word vectors")
        return vectors

    def _parse(self, numbers: bytes, line: int) -> Tensor:
        try:
            vector = torch.tensor([float(number) for number in numbers.split()])
        except ValueError:
            vector = torch.empty(0)
        if not len(vector) or not bool(vector.isfinite().all()):
            raise UserError(f"line {line} of {self} is not a word and finite numbers; give a file of word vectors")
        return vector

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            if self.member is None:
                with self.path.open("rb") as file, byte_progress() as bars:
                    yield bars.wrap_file(file, self.path.stat().st_size, description="reading word vectors")
            else:
                with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member, byte_progress() as bars:
                    size = archive.getinfo(self.member).file_size
                    yield bars.wrap_file(cast(BinaryIO, member), size, description="reading word vectors")
        except DAMAGE as error:
            raise UserError(f"{self} cannot be read ({error}); give another file, or fetch it again") from None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.member} in {self.path}"


def split_words(name: str) -> list[str]:
    """Return the words of a name, in lower case."""
    return [word for word in SEPARATORS.split(name.lower()) if word]
