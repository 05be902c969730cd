"""MIT-States: photographs of objects in some state, many pairs of which are in no training image (a:czsl)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import cache_key, data_folder
from boolit.lab.common.progress import show_working
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.czsl import METRICS, Pair, Pairs, compositional_dataset
from boolit.lab.datasets.download import DAMAGE, PublishedDataset, fetch, note_unverified, published_files
from boolit.lab.datasets.embeddings import Encoded, encode_photographs
from boolit.lab.datasets.images import files_identity
from boolit.lab.models.resnet18 import FEATURES

VERSION = 1  # to be increased whenever the features of an image change
SPLIT = "compositional-split-natural"
METADATA = f"metadata_{SPLIT}.t7"
SPLITS = {"train": "train", "valid": "val", "test": "test"}  # our names, and the files'
FIX = "put the published files there, as docs/paper-models.md says"
FOLDER, GLOVE = published_files("mitstates")
GLOVE_FILE = "glove.6B.300d.txt"


class MitStates(PublishedDataset, Encoded):
    """Features of the images by a frozen ResNet-18, and GloVe's word vectors.

    ``negatives`` is the number of wrong candidates in a training step; ``vectors_digest`` identifies the word vectors.
    """

    name: Literal["mitstates"] = "mitstates"
    negatives: int = Field(600, ge=1, le=10**6)
    vectors_digest: str

    inputs = (FEATURES,)
    classes = 1_962  # pairs, in all splits together
    extra_metrics = METRICS
    samples: ClassVar = {"train": 30_338, "valid": 10_420, "test": 12_995}
    files = (FOLDER, GLOVE)

    @classmethod
    def identify(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"vectors_digest": GLOVE.hash, **super().identify(options)}

    def load(self) -> Dataset:
        folder = FOLDER.path
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder} with the files of MIT-States; {FIX}")
        pairs, images, targets = read_index(folder)
        note_unverified(GLOVE)
        vectors = word_vectors(fetch(GLOVE), [*pairs.attributes, *pairs.objects])
        words = (vectors[: len(pairs.attributes)], vectors[len(pairs.attributes) :])
        files = {split: _image_files(folder, names) for split, names in images.items()}
        features = data_folder() / "embeddings" / cache_key(f"{VERSION} {self.digest} {files_identity(files)}")
        table = encode_photographs(features, files, self.weights, self.digest)
        return compositional_dataset(pairs, targets, table, words, self.negatives)


def read_index(folder: Path) -> tuple[Pairs, dict[str, list[str]], dict[str, Tensor]]:
    """Return the pairs, and by split the images, as paths below ``images``, and the number of each image's pair.

    The metadata of the images is a list of dicts written by ``torch.save`` despite its suffix. As in the published code, an
    image is kept if its pair is in the list of any split, and every set other than ``train`` and ``val`` is for testing.
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
    return pairs, images, {split: torch.tensor(numbers) for split, numbers in targets.items()}


def _read_pairs(path: Path) -> list[Pair]:
    return [(attribute, thing) for attribute, thing in map(str.split, path.read_text("utf-8").strip().splitlines())]


def _image_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the paths of images; the names of their folders may have spaces, as published, or underscores."""
    try:
        folders = {path.name.replace(" ", "_"): path for path in (folder / "images").iterdir()}
        places = (name.rpartition("/") for name in names)
        return [folders[inner.replace(" ", "_")] / file for inner, _, file in places]
    except (OSError, KeyError) as error:
        raise UserError(f"a folder in {folder / 'images'} is missing ({error}); {FIX}") from None


def word_vectors(glove: Path, names: Sequence[str]) -> Tensor:
    """Return a vector for each name, in lower case, from GloVe's zip file or the folder that it unpacks to.

    Shape: ``(names, size)``.
    """
    words = [name.lower().encode() for name in names]
    wanted, known = set(words), dict[bytes, Tensor]()
    try:
        archive = zipfile.Path(glove) if glove.is_file() else glove
        with show_working("reading word vectors"), (archive / GLOVE_FILE).open("rb") as file:
            for line in file:
                word, _, numbers = line.strip().partition(b" ")
                if word in wanted:
                    known[word] = torch.tensor([float(value) for value in numbers.split()])
        vectors = torch.stack([known[word] for word in words])
        if not bool(vectors.isfinite().all()):
            raise ValueError("a number is not finite")
    except (*DAMAGE, ValueError, RuntimeError) as error:  # KeyError for a missing name, RuntimeError if sizes differ
        raise UserError(f"{glove} has no file with the word vectors of all names ({error}); {FIX}") from None
    return vectors
