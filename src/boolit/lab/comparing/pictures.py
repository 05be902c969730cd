"""A folder of pictures: which activation is better in a head on a frozen encoder (s:transfer)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boolit.lab.comparing.question import check_activations
from boolit.lab.data import Source, load, source
from boolit.lab.data.embeddings import weights_identity
from boolit.lab.data.pictures import folder_digest
from boolit.lab.errors import UserError
from boolit.lab.studies import StudyFile

DEFAULT_HEADS = ("identity", "relu", "prelu", "max", "or_ail", "xnor_nil", "xnor_nail", "or_and_xnor_nail_d")
PROFILE = "transfer"
BATCH, LEAST_BATCH, EPOCHS, RATE = 128, 16, 25, 0.01
# Of an epoch of the paper's smallest dataset, 5,000 pictures in batches of 128: smaller folders get smaller batches, but noisy
# gradients of very small ones make normalised gates diverge, so it is fewer steps below 624 pictures, and 4 at least.
STEPS, LEAST_STEPS = 39, 4


@dataclass(frozen=True)
class PictureQuestion:
    """A folder with a folder of pictures for each class, the activations to compare, and how pictures are looked at.

    ``rate`` is found for each activation on the validation pictures unless given, ``batch`` follows from their number.
    """

    folder: Path
    activations: tuple[str, ...] = DEFAULT_HEADS
    seeds: int = 5
    size: int = 224
    views: int = 5
    weights: Path | None = None
    rate: float | None = None
    batch: int | None = None
    epochs: int = EPOCHS

    @property
    def name(self) -> str:
        """What the study is called: the folder's name in letters a file can have."""
        return re.sub(r"[^0-9A-Za-z_-]+", "-", self.folder.resolve().name).strip("-") or "pictures"

    def study(self) -> StudyFile:
        """The study that answers it: the paper's heads and recipe, in batches that suit the number of pictures."""
        check_activations(self.activations)
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise UserError(f"--rate {self.rate} is no learning rate; it must be above 0 and finite, such as 0.003")
        pictures, data = self._data()
        samples = len(load(pictures).splits["train"])
        tables: dict[str, Any] = {
            "title": f"Heads on a frozen ResNet-18 for the pictures of {self.folder.resolve().name}",
            "data": data.model_dump(mode="json"),
            "model": {"name": "head", "sizes": "matched"},
            "sweep": {
                "activation": list(self.activations),
                "width": [512],
                "depth": [2],
                "rounding": "nearest",
                "seeds": self.seeds,
            },
            "training": self._recipe(samples),
            "metric": {"name": "accuracy"},
            "profiles": {PROFILE: {}},
        }
        return StudyFile(self.name, self.folder, "", tables)

    def _recipe(self, samples: int) -> dict[str, Any]:
        own = {"learning_rate": self.rate, "batch": self.batch, "epochs": self.epochs}
        return recipe_for(samples) | {name: value for name, value in own.items() if value is not None}

    def _data(self) -> tuple[Source, Source]:
        """The pictures and their features; what is wrong with folder or weights is found first, to be told in plain words."""
        weights = None if self.weights is None else str(self.weights)
        origin, digest = weights_identity(weights)
        pictures = source({"name": "pictures", "path": str(self.folder), "digest": folder_digest(self.folder)})
        options = {"of": pictures, "views": self.views, "size": self.size, "weights": weights}
        return pictures, source({"name": "embeddings", "origin": origin, "digest": digest, **options})


def recipe_for(samples: int) -> dict[str, Any]:
    """The paper's recipe, with smaller batches for fewer than 5,000 pictures.

    Example:
        >>> [recipe_for(samples)["batch"] for samples in (20, 210, 1000, 50_000)]
        [5, 16, 25, 128]
    """
    suited = min(BATCH, max(LEAST_BATCH, samples // STEPS))
    return {
        "optimiser": "sgd",
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "learning_rate": RATE,
        "schedule": "cosine",
        "epochs": EPOCHS,
        "prelude": 1,
        "batch": max(1, min(suited, samples // LEAST_STEPS)),
    }
