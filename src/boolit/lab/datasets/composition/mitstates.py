"""MIT-States: photographs of objects in some state, many pairs of which are in no training image (a:czsl)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.files import cache_key, data_folder, file_digest
from boolit.lab.datasets.base import Dataset, Description, Task
from boolit.lab.datasets.composition import METRICS
from boolit.lab.datasets.composition.base import WordVectors, compositional_dataset
from boolit.lab.datasets.composition.mitstates_files import FIX, image_files, read_index
from boolit.lab.datasets.composition.word_vectors import Missing, WordFile
from boolit.lab.datasets.download.fetch import fetch_missing
from boolit.lab.datasets.download.published import PublishedDataset, PublishedFile, verify_file
from boolit.lab.datasets.features.embeddings import Origin, weights_identity
from boolit.lab.datasets.features.encoder import encode_views, load_encoder
from boolit.lab.datasets.features.views import PhotographPlan
from boolit.lab.models.resnet18 import FEATURES, Resnet18

PAIRS = 1_962  # of an attribute and an object, in all splits together
VERSION = 1  # of the features of an image
# No checksum of the images and the split was published, so they are not downloaded but put here by hand, and not verified.
LAYOUT = PublishedFile("mitstates", "mit-states", (), "", 0, "mit-states")
GLOVE = PublishedFile(
    "mitstates",
    "glove.6B.zip",
    ("https://nlp.stanford.edu/data/glove.6B.zip", "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip"),
    "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    862_182_613,
    "glove.6B",
)
GLOVE_FILE = "glove.6B.300d.txt"


class MitStates(PublishedDataset):
    """Features of the images by a frozen ResNet-18, and vectors of the words.

    ``path`` is the folder of the files, if they are not in the data folder; ``vectors`` a text file of word vectors instead of
    GloVe's; ``missing`` what happens to a name without a vector. ``weights`` are the encoder's, as for the source
    ``embeddings``. ``negatives`` is the number of wrong candidate pairs in a training step. ``origin``, ``digest`` and
    ``vectors_digest`` identify the files; they are computed and part of every run's key.
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

    task: ClassVar[Task] = "classes"
    samples: ClassVar[Mapping[str, int]] = MappingProxyType({"train": 30_338, "valid": 10_420, "test": 12_995})
    home: ClassVar[str] = (
        "Isola, Lim and Adelson 2015, web.mit.edu/phillipi/Public/states_and_transformations; split: Purushwalkam et al. 2019; "
        "words: Pennington, Socher and Manning 2014, nlp.stanford.edu/projects/glove"
    )
    licence: ClassVar[str] = "none stated, for images and split; words: PDDL 1.0"
    files: ClassVar[tuple[PublishedFile, ...]] = (LAYOUT, GLOVE)

    @model_validator(mode="before")
    @classmethod
    def _add_digests(cls, options: Any) -> Any:
        paths = [options.get(name) for name in ("weights", "vectors")] if isinstance(options, dict) else [0]
        if not all(isinstance(path, str | None) for path in paths):
            return options
        found: dict[str, str] = {}
        if "digest" not in options:
            found["origin"], found["digest"] = weights_identity(options.get("weights"))
        if "vectors_digest" not in options:
            found["vectors_digest"] = vectors_digest(options.get("vectors"))
        return options | found

    @property
    def folder(self) -> Path:
        """The folder of the files, except word vectors and weights."""
        return Path(self.path) if self.path else LAYOUT.path

    def prepare(self) -> None:
        self._features(read_index(self.folder).images, shown=True)

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
        words = WordVectors(vectors[: len(attributes)], vectors[len(attributes) :])
        table = partial(self._features, index.images, shown=False)
        return compositional_dataset(index.pairs, index.targets, table, FEATURES, words, self.negatives)

    def _word_file(self) -> WordFile:
        if vectors_digest(self.vectors) != self.vectors_digest:
            fault = f"the word vectors here are not those with the digest {self.vectors_digest}"
            raise UserError(f"{fault}; put these back, or plan anew")
        if self.vectors is not None:
            return WordFile(Path(self.vectors), None, self.missing, self.seed)
        fetch_missing([GLOVE])
        kept = GLOVE.kept or GLOVE.path
        if kept.is_dir():
            return WordFile(kept / GLOVE_FILE, None, self.missing, self.seed)
        return WordFile(kept, GLOVE_FILE, self.missing, self.seed, partial(verify_file, GLOVE, kept))

    def _features(self, images: Mapping[str, list[str]], shown: bool) -> Tensor:
        plan = PhotographPlan.of({split: image_files(self.folder, names) for split, names in images.items()})
        identity = cache_key(f"{VERSION} {self.digest} {plan.identity()}")
        folder = data_folder() / "embeddings" / identity
        return encode_views(folder, plan, 0, self._encoder, refreshed=False, shown=shown)

    def _encoder(self) -> Resnet18:
        if weights_identity(self.weights)[1] != self.digest:
            raise UserError(f"the weights here are not those with the digest {self.digest}; put that file back, or plan anew")
        return load_encoder(None if self.weights is None else Path(self.weights))


def vectors_digest(vectors: str | None) -> str:
    """The SHA-256 of a file of word vectors; the published archive's, if none is given."""
    return GLOVE.sha256 if vectors is None else file_digest(Path(vectors), "file of word vectors")
