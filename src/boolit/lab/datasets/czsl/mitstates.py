"""MIT-States: photographs of objects in some state, many pairs of which are in no training image (a:czsl)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import cache_key, data_folder, file_digest
from boolit.lab.datasets.base import Dataset, Description
from boolit.lab.datasets.czsl.dataset import compositional_dataset
from boolit.lab.datasets.czsl.pairs import METRICS, Pair, Pairs
from boolit.lab.datasets.czsl.words import Missing, WordFile
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, fetch, note_unverified, published_files
from boolit.lab.datasets.embeddings import Origin, encode_views, load_encoder, weights_identity
from boolit.lab.datasets.views import PhotographPlan
from boolit.lab.models.resnet18 import FEATURES

PAIRS = 1_962  # in all splits together
VERSION = 1  # to be increased whenever the features of an image change
SPLIT = "compositional-split-natural"
METADATA = f"metadata_{SPLIT}.t7"
SPLITS = {"train": "train", "valid": "val", "test": "test"}  # our names, and the files'
FIX = "put the published files there, as docs/compositional.md says"
FOLDER, GLOVE = published_files("mitstates")
GLOVE_FILE = "glove.6B.300d.txt"


class MitStates(PublishedDataset):
    """Features of the images by a frozen ResNet-18, and word vectors.

    ``path`` is the folder of the files, if they are not in the data folder; ``vectors`` is a text file of word vectors instead
    of GloVe's; ``missing`` says what happens to a name without a vector. ``weights`` are the encoder's, as for ``embeddings``.
    ``negatives`` is the number of wrong candidates in a training step. ``origin``, ``digest`` and ``vectors_digest`` identify
    the files; they are computed if they are not given, and part of every run's key.
    """

    name: Literal["mitstates"] = "mitstates"
    path: str | None = None
    vectors: str | None = None
    missing: Missing = "error"
    weights: str | None = None
    negatives: int = Field(600, ge=1, le=10**6)
    seed: int = 0
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
            digests["vectors_digest"] = vectors_digest(options.get("vectors"))
        return options | digests

    @property
    def folder(self) -> Path:
        """The folder of the images and the split."""
        return Path(self.path) if self.path else FOLDER.path

    def prepare(self) -> None:
        self._features(read_index(self.folder), shown=True)

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
        vectors = self._word_file().vectors([*attributes, *objects])
        words = (vectors[: len(attributes)], vectors[len(attributes) :])
        table = partial(self._features, index, shown=False)
        return compositional_dataset(index.pairs, index.targets, table, FEATURES, words, self.negatives)

    def _word_file(self) -> WordFile:
        if vectors_digest(self.vectors) != self.vectors_digest:
            fault = f"the word vectors here are not those with the digest {self.vectors_digest}"
            raise UserError(f"{fault}; put these back, or plan again")
        if self.vectors is not None:
            return WordFile(Path(self.vectors), None, self.missing, self.seed)
        path = fetch(GLOVE)
        file, member = (path / GLOVE_FILE, None) if path.is_dir() else (path, GLOVE_FILE)
        return WordFile(file, member, self.missing, self.seed, partial(note_unverified, GLOVE))

    def _features(self, index: MitStatesIndex, shown: bool) -> Tensor:
        plan = PhotographPlan.of({split: image_files(self.folder, names) for split, names in index.images.items()})
        folder = data_folder() / "embeddings" / cache_key(f"{VERSION} {self.digest} {plan.identity()}")
        return encode_views(folder, plan, 0, partial(load_encoder, self.weights, self.digest), refreshed=False, shown=shown)


def vectors_digest(vectors: str | None) -> str:
    """Return the SHA-256 of a file of word vectors, by default of the published archive."""
    return GLOVE.hash if vectors is None else file_digest(Path(vectors), "file of word vectors")


@dataclass(frozen=True)
class MitStatesIndex:
    """Pairs, and for every split its images, as paths below ``images``, with the number of each image's pair."""

    pairs: Pairs
    images: Mapping[str, list[str]]
    targets: Mapping[str, Tensor]


def read_index(folder: Path) -> MitStatesIndex:
    """Read the lists of pairs and the metadata of the images.

    As in the published code, an image is kept if its pair is in the list of any split, and every set other than ``train`` and
    ``val`` is for testing.
    """
    pairs = Pairs.from_names({split: _read_pairs(folder / SPLIT / f"{word}_pairs.txt") for split, word in SPLITS.items()})
    number = {pair: place for place, pair in enumerate(pairs.names)}
    images: dict[str, list[str]] = {split: [] for split in SPLITS}
    targets: dict[str, list[int]] = {split: [] for split in SPLITS}
    for image, pair, word in _read_metadata(folder / METADATA):
        if pair in number:
            split = {"train": "train", "val": "valid"}.get(word, "test")
            images[split].append(image)
            targets[split].append(number[pair])
    for split, names in images.items():
        if not names:
            raise UserError(f"{folder / METADATA} has no image of a listed pair for the split {SPLITS[split]!r}; {FIX}")
    return MitStatesIndex(pairs, images, {split: torch.tensor(numbers) for split, numbers in targets.items()})


def _read_pairs(path: Path) -> list[Pair]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); {FIX}") from None
    pairs = [tuple(line.split()) for line in lines if line.strip()]
    for pair in pairs:
        if len(pair) != 2:
            raise UserError(f"{path} has the line {' '.join(pair)!r}, which is not an attribute and an object; {FIX}")
    return [(pair[0], pair[1]) for pair in pairs]


def _read_metadata(path: Path) -> Iterator[tuple[str, Pair, str]]:
    """Yield image, pair and set of every record; despite its suffix, the file is a list of dicts written by ``torch.save``."""
    try:
        records = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path} cannot be read by torch.load ({type(error).__name__}: {reason}); {FIX}") from None
    keys = ("image", "attr", "obj", "set")
    if not isinstance(records, list) or not all(
        isinstance(record, dict) and all(isinstance(record.get(key), str) for key in keys) for record in records
    ):
        raise UserError(f"{path} is not a list of records with the texts {', '.join(keys)}; {FIX}")
    for record in records:
        if "NA" not in (record["attr"], record["set"]):
            yield record["image"].removeprefix("images/"), (record["attr"], record["obj"]), record["set"]


def image_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the paths of images; the names of their folders may have spaces, as published, or underscores."""
    images = folder / "images"
    try:
        folders = {path.name.replace(" ", "_"): path for path in images.iterdir()}
    except OSError as error:
        raise UserError(f"the images in {images} cannot be read ({error.strerror}); {FIX}") from None
    paths = []
    for name in names:
        inner, _, file = name.rpartition("/")
        parent = folders.get(inner.replace(" ", "_"))
        if parent is None or not file:
            raise UserError(f"{images} has no folder of the image {name!r}; {FIX}")
        paths.append(parent / file)
    return paths
