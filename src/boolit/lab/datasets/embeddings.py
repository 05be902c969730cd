"""Features of images from a frozen ResNet-18: the inputs of the heads in the transfer experiments (s:transfer).

The features are stored row by row in a file whose length tells how many are complete. A killed process loses a batch at most,
and further views of the same images are appended.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from filelock import FileLock
from pydantic import Field, model_validator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from boolit.errors import UserError
from boolit.lab.common.devices import DeviceCopies, present_device
from boolit.lab.common.files import atomic_write, cache_key, data_folder, file_digest, regular_file
from boolit.lab.common.parallel import map_in_threads
from boolit.lab.common.progress import Begin, count_progress
from boolit.lab.common.random import uniform
from boolit.lab.datasets import AnySource, describe, load
from boolit.lab.datasets.base import Dataset, Description, Source, Split
from boolit.lab.datasets.download import fetch, published_files, read_file
from boolit.lab.datasets.images.normalization import normalizer
from boolit.lab.datasets.views import ViewPlan
from boolit.lab.models.resnet18 import FEATURES, Resnet18, fold_batch_norms

VERSION = 1  # to be increased whenever the features of an image change
RULE = "an encoder takes color images with classes, such as cifar10 or pictures"
TYPE = np.dtype("<f2")
ROW_BYTES = FEATURES * TYPE.itemsize
CPU = torch.device("cpu")
Origin = Literal["published", "reconstructed", "own"]
Statistics: TypeAlias = dict[str, Tensor]

# NOTE[paper]: a:transfer says ResNet50; the text and the parameter counts of the tables say ResNet-18.
(WEIGHTS,) = published_files("weights")
BACKBONE = "resnet18-backbone.pth"  # a reconstruction beside the published file


class Embeddings(Source):
    """Features of the images ``of`` another dataset: of several augmented ``views`` of each training image, one of which is
    drawn in every step, and of the other images as a whole.

    ``size`` is the side of what the encoder sees, ``flip`` whether views may be mirrored. With ``refresh``, one pass over the
    training images first replaces the statistics of its batch norms. ``weights`` is a file instead of torchvision's; a file
    resnet18-backbone.pth in its place counts as a reconstruction. ``origin`` and ``digest`` identify the weights; they are
    computed if they are not given, and part of every run's key.
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
        """The folder of the features; further views are added to those in it."""
        names = ("encoder", "digest", "size", "flip", "refresh", "seed")
        images = self.of.model_dump(mode="json", exclude={"normalization", "path"})
        options = {name: getattr(self, name) for name in names} | {"of": images, "version": VERSION}
        identity = json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
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
        plan = ViewPlan(images.splits, self.size, self.flip, self.seed)
        splits = {
            name: Split(torch.arange(len(split)) + plan.first_row(name), split.y) for name, split in images.splits.items()
        }
        return Dataset(
            splits,
            "classes",
            images.outputs,
            encode=Rows(partial(self._features, images, shown=False)),
            draw=partial(draw_view, len(splits["train"]), self.views),
            input_shape=(FEATURES,),
        )

    def _features(self, images: Dataset, shown: bool) -> Tensor:
        plan = ViewPlan(images.splits, self.size, self.flip, self.seed)
        encoder = partial(load_encoder, self.weights, self.digest)
        return encode_views(self.folder, plan, self.views, encoder, self.refresh, shown)


class Rows:
    """Rows of a table that is made when the first one is needed. Shape: ``(…)`` row numbers to ``(…, 512)``."""

    def __init__(self, table: Callable[[], Tensor]) -> None:
        self._make = table

    @cached_property
    def table(self) -> DeviceCopies:
        """The whole table."""
        return DeviceCopies(self._make())

    def __call__(self, rows: Tensor) -> Tensor:
        return self.table.take(rows.flatten()).float().view(*rows.shape, FEATURES)


def draw_view(samples: int, views: int, x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Return the row of a random view of every sample, and the targets.

    Shape: ``(runs, batch)`` rows of first views, unchanged.
    """
    view = (uniform(run_keys, step, x.shape[1:]) * views).long()
    return x + samples * view, y


def weights_identity(weights: str | None) -> tuple[Origin, str]:
    """Return the origin of the weights that would be used, and their SHA-256."""
    if weights is not None:
        return "own", file_digest(Path(weights), "weights file")
    backbone = WEIGHTS.path.with_name(BACKBONE)
    if WEIGHTS.here is None and backbone.is_file():
        return "reconstructed", file_digest(backbone, "weights file")
    return "published", WEIGHTS.hash


def load_encoder(weights: str | None, digest: str) -> Resnet18:
    """Return the encoder with the weights that have a digest."""
    origin, actual = weights_identity(weights)
    if actual != digest:
        raise UserError(f"the weights here are not those with the digest {digest}; put that file back, or plan again")
    if origin == "published":
        read_file(WEIGHTS)  # verifies it
    path = Path(weights) if weights else fetch(WEIGHTS) if origin == "published" else WEIGHTS.path.with_name(BACKBONE)
    with torch.random.fork_rng(devices=[]):  # the layers draw initial weights
        network = Resnet18()
    network.load_state_dict(read_weights(path), strict=False)
    return network.eval().requires_grad_(False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a ResNet-18 without its last layer, by torchvision's names, as float32."""
    try:
        values = torch.load(regular_file(path), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"there is no weights file {path}; check the path") from None
    except pickle.UnpicklingError:  # torch's own message recommends to load without the safeguard
        raise UserError(f"{path} holds more than tensors and could run code; give a file of tensors") from None
    except UserError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise UserError(f"{path} is not a weights file ({type(error).__name__}); give another, or fetch it again") from None
    with torch.device("meta"):
        expected = {name: value for name, value in Resnet18().state_dict().items() if not name.endswith("batches_tracked")}
    values = values if isinstance(values, dict) else {}
    for name, value in expected.items():
        shape = tuple(values[name].shape) if isinstance(values.get(name), Tensor) else None
        if shape != tuple(value.shape):
            rule = f"{name} has the shape {shape}, not {tuple(value.shape)}"
            raise UserError(f"{path} is not a ResNet-18: {rule}; give torchvision's file")
    return {name: values[name].float() for name in expected}


def encode_views(
    folder: Path, plan: ViewPlan, views: int, encoder: Callable[[], Resnet18], refreshed: bool, shown: bool
) -> Tensor:
    """Return the features of all views, encoding those that are not in the folder yet.

    Shape: ``(views of all images, 512)``, float16, in the order of `ViewPlan`.
    """
    file, rows = folder / "features", plan.count(views)
    if not (file.is_file() and file.stat().st_size >= rows * ROW_BYTES):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"), count_progress(shown) as begin:
            network = _refreshed_network(folder, plan, encoder(), begin) if refreshed else encoder()
            _encode(file, plan, views, Features(network, present_device()), begin)
    return torch.from_numpy(np.memmap(file, TYPE, "c", shape=(rows, FEATURES)))  # copy-on-write


def _encode(file: Path, plan: ViewPlan, views: int, features: Features, begin: Begin) -> None:
    total = plan.count(views)
    with file.open("ab") as opened:
        done = min(total, opened.tell() // ROW_BYTES)
        if done < total:  # another process may have written more in the meantime
            opened.truncate(done * ROW_BYTES)
        advance = begin("encoding images", total, done)
        for rows in map_in_threads(lambda batch: features(plan.views(batch)), plan.batches(views, done)):
            opened.write(rows.numpy().astype(TYPE, copy=False).tobytes())
            opened.flush()
            advance(len(rows))


def _refreshed_network(folder: Path, plan: ViewPlan, network: Resnet18, begin: Begin) -> Resnet18:
    kept, device = folder / "statistics.safetensors", present_device()
    if not kept.is_file():
        advance = begin("refreshing batch norms", len(plan.splits["train"]), 0)

        def statistics(rows: Tensor) -> Statistics:
            result = batch_statistics(network, plan.refresh_views(rows), device)
            advance(len(rows))
            return result

        with atomic_write(kept) as part:
            save_file(mean_statistics(map_in_threads(statistics, plan.refresh_batches())), part)
    network.load_state_dict(load_file(kept), strict=False)
    return network


def batch_statistics(network: Resnet18, images: Tensor, device: torch.device = CPU) -> Statistics:
    """Return the mean and variance of the inputs of every batch norm on a batch that is normalized by its own.

    Shape: ``(n, 3, size, size)`` bytes.
    """
    network = copy.deepcopy(network).train()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # a cumulative average, so the statistics of this batch
    network.to(device)
    with torch.no_grad():
        network(_normalized(images, device))
    return {
        name: values.cpu() for name, values in network.state_dict().items() if name.endswith(("running_mean", "running_var"))
    }


def mean_statistics(batches: Iterable[Statistics]) -> Statistics:
    """Return the mean of the statistics of all batches.

    NOTE[paper]: "one epoch worth of inputs" does not say how batches are weighted. With torch's default, a moving average, the
    last twenty would decide, and a small dataset would keep a share of ImageNet's statistics.
    """
    sums: Statistics = {}
    count = 0
    for statistics in batches:
        sums = {name: sums.get(name, 0) + values.double() for name, values in statistics.items()}
        count += 1
    return {name: (values / count).float() for name, values in sums.items()}


class Features:
    """The features of images by a network, as float16.

    Its rounding of 0.05 % is far below the difference between two views of an image (80 % of their length on CIFAR-10), and its
    range far above the features (at most 25 there).

    Shape: ``(n, 3, size, size)`` bytes to ``(n, 512)``.
    """

    def __init__(self, network: Resnet18, device: torch.device = CPU) -> None:
        self._network, self._device = fold_batch_norms(network).to(device), device

    def __call__(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            features: Tensor = self._network(_normalized(images, self._device)).half().cpu()
        if not bool(features.isfinite().all()):
            raise UserError("the encoder's features of some images are not finite in float16; use other weights")
        return features


def _normalized(images: Tensor, device: torch.device) -> Tensor:
    return normalizer("imagenet")(images.to(device)).contiguous(memory_format=torch.channels_last)
