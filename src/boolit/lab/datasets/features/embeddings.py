"""Images as a frozen, pretrained network sees them: what the heads of the transfer experiments learn from (s:transfer)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.devices import DeviceCopies
from boolit.lab.common.files import cache_key, data_folder, file_digest
from boolit.lab.common.random import uniform
from boolit.lab.datasets import AnySource, describe, load
from boolit.lab.datasets.base import Dataset, Description, Source, Split
from boolit.lab.datasets.features.encoder import encode_views, load_encoder
from boolit.lab.datasets.features.views import ViewPlan
from boolit.lab.datasets.features.weights import Weights, resnet18_here, resnet18_path
from boolit.lab.models.resnet18 import FEATURES, Resnet18
from boolit.lab.runs import canonical

VERSION = 1  # counts the changes of what is made of an image
RULE = "an encoder takes colour images with classes, such as cifar10 or pictures"
Origin = Literal["published", "reconstructed", "own"]


class Embeddings(Source):
    """Features of the images ``of`` another dataset: of several augmented ``views`` of each training image, one of which is
    drawn in every step, and of the others whole. ``size`` is the side of what the encoder sees, ``flip`` whether views may be
    mirrored. With ``refresh`` one pass over the training images first replaces the statistics of its batch norms.

    ``weights`` is a file instead of the published one; a file resnet18-backbone.pth in the published one's place counts as a
    reconstruction of it. ``origin`` and ``digest`` say which it was, and are found: so they are part of every run's key.
    """

    name: Literal["embeddings"] = "embeddings"
    of: AnySource
    encoder: Literal["resnet18"] = "resnet18"
    weights: str | None = None
    views: int = Field(25, ge=1, le=10_000)
    size: int = Field(224, ge=32, le=1024)
    flip: bool = True
    refresh: bool = True
    seed: int = 0
    origin: Origin
    digest: str

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, options: Any) -> Any:
        if not isinstance(options, dict) or "digest" in options or not isinstance(options.get("weights"), str | None):
            return options
        origin, digest = weights_identity(options.get("weights"))
        return options | {"origin": origin, "digest": digest}

    @property
    def folder(self) -> Path:
        """Where the features are kept: further views are added to what is there."""
        names = ("encoder", "digest", "size", "flip", "refresh", "seed")
        seen = self.of.model_dump(mode="json", exclude={"normalisation", "path"})
        identity = canonical({name: getattr(self, name) for name in names} | {"of": seen, "version": VERSION})
        return data_folder() / "embeddings" / cache_key(identity)

    def describe(self) -> Description:
        images = describe(self.of)
        if images.task != "classes" or len(images.inputs) != 3 or images.inputs[0] != 3:
            raise UserError(f"{self.of.name} has samples of the shape {images.inputs}: {RULE}")
        return Description((FEATURES,), images.outputs, "classes", images.samples)

    def prepare(self) -> None:
        self._features(load(self.of), shown=True)

    def load(self) -> Dataset:
        images = load(self.of)
        x = images.splits["train"].x
        if images.task != "classes" or x.dtype != torch.uint8 or x.dim() != 4 or x.shape[1] != 3:
            raise UserError(f"{self.of.name} has samples of {x.dtype} and shape {tuple(x.shape[1:])}: {RULE}")
        plan = self._view_plan(images)
        splits = {
            name: Split(torch.arange(len(split)) + plan.first_row(name), split.y) for name, split in images.splits.items()
        }
        return Dataset(
            splits,
            "classes",
            images.outputs,
            encode=Rows(partial(self._features, images, shown=False)),
            draw=partial(one_view, len(splits["train"]), self.views),
            input_shape=(FEATURES,),
        )

    def _view_plan(self, images: Dataset) -> ViewPlan:
        return ViewPlan(images.splits, self.size, self.flip, self.seed)

    def _features(self, images: Dataset, shown: bool) -> Tensor:
        return encode_views(self.folder, self._view_plan(images), self.views, self._encoder, self.refresh, shown)

    def _encoder(self) -> Resnet18:
        if weights_identity(self.weights)[1] != self.digest:
            raise UserError(f"the weights here are not those with the digest {self.digest}; put that file back, or plan anew")
        return load_encoder(None if self.weights is None else Path(self.weights))


class Rows:
    """Rows of a table that is made or mapped when the first is wanted.

    Shape: ``(…)`` row numbers to ``(…, 512)``.
    """

    def __init__(self, table: Callable[[], Tensor]) -> None:
        self._make = table

    @cached_property
    def table(self) -> DeviceCopies:
        """The whole table."""
        return DeviceCopies(self._make())

    def __call__(self, rows: Tensor) -> Tensor:
        return self.table.take(rows.flatten()).float().view(*rows.shape, FEATURES)


def one_view(samples: int, views: int, x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """The row of one of every sample's views, each as likely.

    Shape: ``(runs, batch)`` rows of first views, to the same.
    """
    view = (uniform(run_keys, step, x.shape[1:]) * views).long()
    return x + samples * view, y


def weights_identity(weights: str | None) -> tuple[Origin, str]:
    """Where the weights that would be used come from, and their SHA-256."""
    (published,) = Weights.files
    if weights is None and (published.kept or not resnet18_here()):
        return "published", published.sha256
    path = Path(weights) if weights else resnet18_path()
    return "own" if weights else "reconstructed", file_digest(path, "weights file")
