"""MIT-States: photographs of objects in some state, many pairs of which are in no training image (a:czsl)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import cache_key, data_folder, file_digest
from boolit.lab.common.progress import show_working
from boolit.lab.datasets.base import Dataset, Description
from boolit.lab.datasets.czsl import METRICS, Pair, Pairs, compositional_dataset
from boolit.lab.datasets.download import DAMAGE, PublishedDataset, PublishedFile, fetch, note_unverified, published_files
from boolit.lab.datasets.embeddings import Origin, encode_photographs, weights_identity
from boolit.lab.datasets.images import files_identity
from boolit.lab.models.resnet18 import FEATURES

PAIRS = 1_962  # in all splits together
VERSION = 1  # to be increased whenever the features of an image change
SPLIT = "compositional-split-natural"
METADATA = f"metadata_{SPLIT}.t7"
SPLITS = {"train": "train", "valid": "val", "test": "test"}  # our names, and the files'
FIX = "put the published files there, as docs/paper-models.md says"
FOLDER, GLOVE = published_files("mitstates")
GLOVE_FILE = "glove.6B.300d.txt"
SEPARATORS = re.compile(r"[\s_.\-]+")  # between the words of a name


class MitStates(PublishedDataset):
    """Features of the images by a frozen ResNet-18, and word vectors.

    ``path`` is the folder of the files, if they are not in the data folder; ``vectors`` is a text file of word vectors instead
    of GloVe's. ``weights`` are the encoder's, as for ``embeddings``. ``negatives`` is the number of wrong candidates in a
    training step. ``origin``, ``digest`` and ``vectors_digest`` identify the files; they are computed if they are not given,
    and part of every run's key.
    """

    name: Literal["mitstates"] = "mitstates"
    path: str | None = None
    vectors: str | None = None
    weights: str | None = None
    negatives: int = Field(600, ge=1, le=10**6)
    origin: Origin = "published"
    digest: str = ""
    vectors_digest: str = ""

    samples: ClassVar[Mapping[str, int]] = {"train": 30_338, "valid": 10_420, "test": 12_995}
    files: ClassVar[tuple[PublishedFile, ...]] = (FOLDER, GLOVE)

    @model_validator(mode="before")
    @classmethod
    def _with_digests(cls, options: Any) -> Any:
        paths = [options.get(name) for name in ("weights", "vectors")] if isinstance(options, dict) else [0]
        if not all(isinstance(path, str | None) for path in paths):
            return options
        digests: dict[str, str] = {}
        if "digest" not in options:
            digests["origin"], digests["digest"] = weights_identity(options.get("weights"))
        if "vectors_digest" not in options:
            digests["vectors_digest"] = _vectors_digest(options.get("vectors"))
        return options | digests

    @property
    def folder(self) -> Path:
        """The folder of the images and the split."""
        return Path(self.path) if self.path else FOLDER.path

    def describe(self) -> Description:
        outputs, samples = PAIRS, self.samples
        if self.folder.is_dir():
            index = read_index(self.folder)
            outputs, samples = len(index.pairs.numbers), {split: len(numbers) for split, numbers in index.targets.items()}
        return Description((FEATURES,), outputs, self.task, samples, METRICS)

    def load(self) -> Dataset:
        if not self.folder.is_dir():
            raise UserError(f"there is no folder {self.folder} with the files of MIT-States; {FIX}")
        index = read_index(self.folder)
        attributes, objects = index.pairs.attributes, index.pairs.objects
        vectors = self._vectors([*attributes, *objects])
        words = (vectors[: len(attributes)], vectors[len(attributes) :])
        files = {split: _image_files(self.folder, names) for split, names in index.images.items()}
        folder = data_folder() / "embeddings" / cache_key(f"{VERSION} {self.digest} {files_identity(files)}")
        table = encode_photographs(folder, files, self.weights, self.digest)
        return compositional_dataset(index.pairs, index.targets, table, words, self.negatives)

    def _vectors(self, names: Sequence[str]) -> Tensor:
        if _vectors_digest(self.vectors) != self.vectors_digest:
            raise UserError(f"the word vectors are not those with the digest {self.vectors_digest}; put these back")
        if self.vectors is None:
            note_unverified(GLOVE)
        path = Path(self.vectors) if self.vectors else fetch(GLOVE)
        return word_vectors(path / GLOVE_FILE if path.is_dir() else path, names)


def _vectors_digest(vectors: str | None) -> str:
    return GLOVE.hash if vectors is None else file_digest(Path(vectors), "file of word vectors")


class MitStatesIndex(NamedTuple):
    """Pairs, and for every split its images, as paths below ``images``, with the number of each image's pair."""

    pairs: Pairs
    images: dict[str, list[str]]
    targets: dict[str, Tensor]


def read_index(folder: Path) -> MitStatesIndex:
    """Read the lists of pairs and the metadata of the images, a list of dicts written by ``torch.save`` despite its suffix.

    As in the published code, an image is kept if its pair is in the list of any split, and every set other than ``train`` and
    ``val`` is for testing.
    """
    images: dict[str, list[str]] = {split: [] for split in SPLITS}
    targets: dict[str, list[int]] = {split: [] for split in SPLITS}
    try:
        pairs = Pairs.from_names({split: _read_pairs(folder / SPLIT / f"{word}_pairs.txt") for split, word in SPLITS.items()})
        number = {pair: place for place, pair in enumerate(pairs.names)}
        for record in torch.load(folder / METADATA, map_location="cpu", weights_only=True):
            pair = (record["attr"], record["obj"])
            if pair in number and record["set"] != "NA":
                split = {"train": "train", "val": "valid"}.get(record["set"], "test")
                images[split].append(record["image"].removeprefix("images/"))
                targets[split].append(number[pair])
    except Exception as error:  # a damaged file may raise anything
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"the split in {folder} cannot be read ({type(error).__name__}: {reason}); {FIX}") from None
    for split, names in images.items():
        if not names:
            raise UserError(f"{folder / METADATA} has no image of a listed pair for the split {SPLITS[split]!r}; {FIX}")
    return MitStatesIndex(pairs, images, {split: torch.tensor(numbers) for split, numbers in targets.items()})


def _read_pairs(path: Path) -> list[Pair]:
    lines = path.read_text("utf-8").splitlines()
    return [(attribute, thing) for attribute, thing in (line.split() for line in lines if line.strip())]


def _image_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the paths of images; the names of their folders may have spaces, as published, or underscores."""
    try:
        folders = {path.name.replace(" ", "_"): path for path in (folder / "images").iterdir()}
        places = (name.rpartition("/") for name in names)
        return [folders[inner.replace(" ", "_")] / file for inner, _, file in places]
    except (OSError, KeyError) as error:
        raise UserError(f"a folder in {folder / 'images'} is missing ({error}); {FIX}") from None


def word_vectors(path: Path, names: Sequence[str]) -> Tensor:
    """Return a vector for each name: that of the name in lower case, else the mean of its words.

    Args:
        path: a text file with a word and its numbers on each line, or GloVe's zip file with one.
        names: the names, which may have several words.

    Shape: ``(names, size)``.
    """
    parts = {name: SEPARATORS.split(name.lower()) for name in names}
    known = _read_vectors(path, {word for name in names for word in (name.lower(), *parts[name])})
    vectors = []
    for name in names:
        words = [name.lower()] if name.lower() in known else [word for word in parts[name] if word in known]
        if not words:
            raise UserError(f"{path} has no vector for {name!r}; add one")
        vectors.append(torch.stack([known[word] for word in words]).mean(0))
    return torch.stack(vectors)


def _read_vectors(path: Path, words: set[str]) -> dict[str, Tensor]:
    encoded = {word.encode(): word for word in words}
    rows: dict[str, list[float]] = {}
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(path.open("rb"))
            if path.suffix == ".zip":
                file = stack.enter_context(stack.enter_context(zipfile.ZipFile(file)).open(GLOVE_FILE))
            stack.enter_context(show_working("reading word vectors"))
            for line in file:
                word, _, numbers = line.strip().partition(b" ")
                if word in encoded:
                    rows[encoded[word]] = [float(value) for value in numbers.split()]
        vectors = torch.tensor(list(rows.values()))  # raises ValueError if their sizes differ
        if not vectors.numel() or not bool(vectors.isfinite().all()):
            raise ValueError("no vectors of finite numbers")
    except (*DAMAGE, ValueError) as error:
        raise UserError(f"{path} is not a file of word vectors for these names ({error}); give another") from None
    return dict(zip(rows, vectors, strict=True))
