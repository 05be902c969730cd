"""MIT-States: photographs of objects in some state, many pairs of which are in no training image (a:czsl)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import cache_key, data_folder
from boolit.lab.common.progress import show_working
from boolit.lab.datasets.base import Dataset, Description
from boolit.lab.datasets.czsl import METRICS, Pair, Pairs, compositional_dataset
from boolit.lab.datasets.download import DAMAGE, PublishedDataset, fetch, note_unverified, published_files
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
    """Features of the images by a frozen ResNet-18, and GloVe's word vectors.

    ``weights`` are the encoder's, as for ``embeddings``. ``negatives`` is the number of wrong candidates in a training step.
    ``origin``, ``digest`` and ``vectors_digest`` identify weights and vectors; they are computed if they are not given, and
    part of every run's key.
    """

    name: Literal["mitstates"] = "mitstates"
    weights: str | None = None
    negatives: int = Field(600, ge=1, le=10**6)
    origin: Origin = "published"
    digest: str = ""
    vectors_digest: str = ""

    samples: ClassVar = {"train": 30_338, "valid": 10_420, "test": 12_995}
    files = (FOLDER, GLOVE)

    @model_validator(mode="before")
    @classmethod
    def _with_digests(cls, options: Any) -> Any:
        if not isinstance(options, dict) or "digest" in options or not isinstance(options.get("weights"), str | None):
            return options
        origin, digest = weights_identity(options.get("weights"))
        return options | {"origin": origin, "digest": digest, "vectors_digest": GLOVE.hash}

    def describe(self) -> Description:
        return Description((FEATURES,), PAIRS, self.task, self.samples, METRICS)

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


def word_vectors(glove: Path, names: Sequence[str]) -> Tensor:
    """Return a vector for each name: that of the name in lower case, else the mean of its words.

    Args:
        glove: GloVe's zip file or the folder that it unpacks to.
        names: the names, which may have several words.

    Shape: ``(names, size)``.
    """
    parts = {name: SEPARATORS.split(name.lower()) for name in names}
    wanted = {word.encode(): word for name in names for word in (name.lower(), *parts[name])}
    known: dict[str, Tensor] = {}
    try:
        archive = zipfile.Path(glove) if glove.is_file() else glove
        with show_working("reading word vectors"), (archive / GLOVE_FILE).open("rb") as file:
            for line in file:
                word, _, numbers = line.strip().partition(b" ")
                if word in wanted:
                    known[wanted[word]] = torch.tensor([float(value) for value in numbers.split()])
        if not known or not bool(torch.stack(list(known.values())).isfinite().all()):
            raise ValueError("no vectors of finite numbers")
    except (*DAMAGE, ValueError, RuntimeError) as error:  # torch.stack raises RuntimeError if sizes differ
        raise UserError(f"{glove} has no file of word vectors for these names ({error}); {FIX}") from None
    vectors = []
    for name in names:
        words = [name.lower()] if name.lower() in known else [word for word in parts[name] if word in known]
        if not words:
            raise UserError(f"{glove} has no vector for {name!r}; add one")
        vectors.append(torch.stack([known[word] for word in words]).mean(0))
    return torch.stack(vectors)
