"""Word vectors from a text file with a word and its numbers on each line, such as GloVe's."""

from __future__ import annotations

import re
import zipfile
import zlib
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

Missing: TypeAlias = Literal["error", "random"]
Vectors: TypeAlias = dict[str, Tensor]
VERSION = 1  # of the vectors made from a file
LONGEST_LINE = 2**20  # bytes; a word with 300 numbers has 3,000
SEPARATORS = re.compile(r"[\s_.\-]+")  # between the words of a name


@dataclass(frozen=True)
class WordFile:
    """A text file of vectors, or ``member`` of a zip file. ``missing`` says what happens to a name with no known word: an
    error, or a random vector from ``seed`` and the name, with the others' deviation. ``verify`` is called before reading.
    """

    path: Path
    member: str | None = None
    missing: Missing = "error"
    seed: int = 0
    verify: Callable[[], None] | None = None

    def vectors(self, names: Sequence[str]) -> Tensor:
        """A vector for each name: that of the name in lower case, else the mean of its words'. The result is cached on disk.

        Shape: ``(names, size)``.
        """
        kept = data_folder() / "vectors" / f"{self._identity(names)}.safetensors"
        try:
            return load_file(kept)["vectors"]
        except (OSError, SafetensorError, KeyError):
            if self.verify:
                self.verify()
            found = self._read({word for name in names for word in (name.lower(), *split_words(name))})
            vectors = self._combine(names, found)
            _keep(vectors, kept)
            return vectors

    def _combine(self, names: Sequence[str], found: Vectors) -> Tensor:
        if not found:
            raise UserError(
                f"{self} has none of the {len(names)} names, such as {names[0]!r}; give a file of words with vectors"
            )
        size, deviation = len(next(iter(found.values()))), float(torch.stack(list(found.values())).std())
        vectors: Vectors = {}
        for name in names:
            parts = [found[word] for word in split_words(name) if word in found]
            if name.lower() in found:
                vectors[name] = found[name.lower()]
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
        found: Vectors = {}
        with self._opened() as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1):
                if len(line) > LONGEST_LINE:
                    raise UserError(f"line {number} of {self} has more than {LONGEST_LINE:,} bytes; give a file of vectors")
                word, _, numbers = line.strip().partition(b" ")
                header = number == 1 and word.isdigit() and numbers.isdigit()  # numbers of words and dimensions
                if word in encoded and not header:
                    found[encoded[word]] = self._parse(numbers, number, found)
        return found

    def _parse(self, numbers: bytes, line: int, found: Vectors) -> Tensor:
        try:
            vector = torch.tensor([float(number) for number in numbers.split()])
        except ValueError:
            raise UserError(f"line {line} of {self} has more than a word and its numbers; give a file of vectors") from None
        size = len(next(iter(found.values()), vector))
        if len(vector) != size or size == 0 or not bool(vector.isfinite().all()):
            raise UserError(f"line {line} of {self} has {len(vector)} numbers, not {size or 'some'} finite ones; mend it")
        return vector

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self._plain() as (file, size), byte_progress() as bars:
                yield bars.wrap_file(file, size, description="reading word vectors")
        except (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"{self} cannot be read ({error}); give another file, or fetch it again") from None

    @contextmanager
    def _plain(self) -> Iterator[tuple[BinaryIO, int]]:
        if self.member is None:
            with regular_file(self.path).open("rb") as file:
                yield file, self.path.stat().st_size
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                yield cast(BinaryIO, member), archive.getinfo(self.member).file_size

    def _identity(self, names: Sequence[str]) -> str:
        try:
            state = regular_file(self.path).stat()
        except OSError as error:
            raise UserError(f"there are no word vectors in {self} ({error.strerror}); check the path") from None
        facts = (VERSION, self.path.name, self.member, state.st_size, state.st_mtime_ns, self.missing, self.seed, *names)
        return cache_key(*facts)

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.member} in {self.path}"


def split_words(name: str) -> list[str]:
    """The words of a name, in lower case.

    Example:
        >>> split_words("Old_bear"), split_words("moss-covered stone")
        (['old', 'bear'], ['moss', 'covered', 'stone'])
    """
    return [word for word in SEPARATORS.split(name.lower()) if word]


def _keep(vectors: Tensor, kept: Path) -> None:
    with suppress(OSError, SafetensorError):  # then they are read anew at the next start
        kept.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kept) as part:
            save_file({"vectors": vectors}, part)
