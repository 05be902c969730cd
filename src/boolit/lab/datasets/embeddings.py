"""Features of images from a frozen ResNet-18: the inputs of the heads in the transfer experiments (s:transfer).

A training image is seen in several augmented views. A view is a random crop (0.7 to 1 of the image's area, aspect ratio 3:4 to
4:3), scaled to a square. Half of the views are mirrored. Brightness, contrast and saturation each change by a factor of 0.6 to
1.4, in random order. A view depends only on the seed, the image and the number of the view. NOTE[paper]: "colour jitter
(intensity 0.4)" does not say whether hue is included. In timm, which uses these names, 0.4 changes these three.

The features are stored row by row in a file whose length tells how many are complete. A killed process loses at most one
batch, and further views of the same images are appended.
"""

from __future__ import annotations

import json
import math
from abc import ABC
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, permutations
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from filelock import FileLock
from PIL import Image, ImageEnhance
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from boolit.errors import UserError
from boolit.lab.common.devices import DeviceCopies, map_in_threads, present_device
from boolit.lab.common.files import atomic_write, cache_key, data_folder, file_digest
from boolit.lab.common.progress import count_progress
from boolit.lab.common.random import generator, keys, uniform
from boolit.lab.datasets import AnySource, describe, load
from boolit.lab.datasets.base import Dataset, Description, Source, Split, look_up_rows
from boolit.lab.datasets.download import fetch, published_files, read_contents
from boolit.lab.datasets.images import decode_image, normalizer
from boolit.lab.models.resnet18 import FEATURES, Resnet18, fold_batch_norms

VERSION = 1  # to be increased whenever the features of an image change
TYPE = np.dtype("<f2")
ROW_BYTES = FEATURES * TYPE.itemsize
BATCH = 64
SCALED, SEEN = 256, 224  # side of a decoded photograph, and of the square that is cut from its center
Origin = Literal["published", "reconstructed", "own"]
Batch: TypeAlias = tuple[int, Callable[[], Tensor]]  # a number of images, and a function that returns them as bytes

SMALLEST_AREA, LARGEST_AREA = 0.7, 1.0
WIDEST = 4 / 3
JITTER = 0.4
TRIES = 10  # crops drawn until one fits into its image; otherwise the whole image is taken
NUMBERS = 2 * TRIES + 2 + 1 + 4  # per view: crops, place, mirrored, three factors and their order
CHANGES: tuple[Callable[[Image.Image], Any], ...] = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
ORDERS = list(permutations(range(len(CHANGES))))

# NOTE[paper]: a:transfer says ResNet50; the text and the parameter counts of the tables say ResNet-18.
(WEIGHTS,) = published_files("weights")
BACKBONE = "resnet18-backbone.pth"  # a reconstruction beside the published file


class Encoded(Source, ABC):
    """A dataset of features of an encoder.

    ``weights`` is a file to use instead of torchvision's weights; if those are missing, a file resnet18-backbone.pth in the
    same folder is used as a reconstruction. ``origin`` and ``digest`` identify the weights. They are part of every run's key,
    and computed if they are not given.
    """

    weights: str | None = None
    origin: Origin
    digest: str

    @classmethod
    def identify(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if "digest" in options or not isinstance(options.get("weights"), str | None):
            return {}
        return dict(zip(("origin", "digest"), weights_identity(options.get("weights")), strict=True))


class Embeddings(Encoded):
    """Features of the images of another dataset, ``of``.

    Each training image has ``views`` augmented views, one of which is drawn in every step; other images are not augmented.
    ``size`` is the side of the encoder's input; ``flip`` allows mirrored views. With ``refresh``, one pass over the training
    images first replaces the running statistics of the encoder's batch norms.
    """

    name: Literal["embeddings"] = "embeddings"
    of: AnySource
    encoder: Literal["resnet18"] = "resnet18"
    views: int = Field(25, ge=1, le=10_000)
    size: int = Field(224, ge=32, le=1024)
    flip: bool = True
    refresh: bool = True
    seed: int = 0

    @property
    def folder(self) -> Path:
        """The folder of the features; further views are added to those in it."""
        names = ("encoder", "digest", "size", "flip", "refresh", "seed")
        images = self.of.model_dump(mode="json", exclude={"normalization", "path"})
        if images.get("tested") == 1.0:
            del images["tested"]  # features that were encoded before this option keep their folder
        options = {name: getattr(self, name) for name in names} | {"of": images, "version": VERSION}
        identity = json.dumps(options, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return data_folder() / "embeddings" / cache_key(identity)

    def describe(self) -> Description:
        images = describe(self.of)
        if images.task != "classes" or len(images.inputs) != 3 or images.inputs[0] != 3:
            rule = "an encoder takes color images with classes, such as cifar10 or flowers"
            raise UserError(f"{self.of.name} has samples of the shape {images.inputs}: {rule}")
        return Description((FEATURES,), images.outputs, "classes", images.samples)

    def load(self) -> Dataset:
        images = load(self.of)
        train = images.splits["train"]
        # The other splits come first, by name, and then every view of all training images.
        batches: list[Batch] = []
        splits: dict[str, Split] = {}
        first = 0
        for name in sorted(images.splits, key=lambda name: (name == "train", name)):
            x, y = images.splits[name].x, images.splits[name].y
            splits[name] = Split(torch.arange(first, first + len(x)), y)
            for view in range(self.views) if name == "train" else [None]:
                batches += [(len(rows), partial(self._see, x, view, rows)) for rows in torch.arange(len(x)).split(BATCH)]
            first += len(x)
        table = encode_batches(self.folder, batches, partial(self._encoder, train.x))
        return Dataset(
            {name: splits[name] for name in images.splits},
            "classes",
            images.outputs,
            encode=partial(look_up_rows, DeviceCopies(table)),
            draw=partial(draw_view, len(train), self.views),
            input_shape=(FEATURES,),
        )

    def _see(self, images: Tensor, view: int | None, rows: Tensor) -> Tensor:
        """Return images as the encoder sees them: whole, or in the view with a number.

        NOTE[paper]: how test images are cut is not given; they are scaled as a whole.
        """
        if view is not None:
            return self._augment(images, "view", view, rows)
        return images[rows] if images.shape[-2:] == (self.size, self.size) else resize(images[rows], self.size)

    def _augment(self, images: Tensor, purpose: str, view: int, rows: Tensor) -> Tensor:
        numbers = uniform(keys(rows.tolist(), purpose, self.seed), view, (NUMBERS,))
        return augmented_view(images[rows], numbers, self.size, self.flip)

    def _encoder(self, images: Tensor) -> Resnet18:
        """Return the encoder; with ``refresh``, its batch norms have the statistics of a further view of all images."""
        network = load_encoder(self.weights, self.digest)
        if not self.refresh:
            return network
        kept, device = self.folder / "statistics.safetensors", present_device()
        if not kept.is_file():
            order = torch.randperm(len(images), generator=generator(self.seed, "refresh"))
            with count_progress() as begin, atomic_write(kept) as part:
                advance = begin("refreshing batch norms", len(images))

                def view(rows: Tensor) -> Tensor:
                    advance(len(rows))
                    return _normalized(self._augment(images, "refresh", 0, rows), device)

                views = map_in_threads(view, order.tensor_split(-(-len(order) // BATCH)))
                # NOTE[paper]: "one epoch worth of inputs" does not say how batches are weighted: here equally. With the
                # default moving average, the last twenty would decide, and few images would keep ImageNet's statistics.
                update_bn(views, network.to(device))
                save_file({name: v.cpu() for name, v in network.state_dict().items() if "running" in name}, part)
        network.load_state_dict(load_file(kept), strict=False)
        return network


def draw_view(samples: int, views: int, x: Tensor, y: Tensor, run_keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Return the row of a random view of every sample, and the targets. Shape: ``(runs, batch)`` rows, unchanged."""
    view = (uniform(run_keys, step, x.shape[1:]) * views).long()
    return x + samples * view, y


def augmented_view(images: Tensor, numbers: Tensor, size: int, flip: bool) -> Tensor:
    """Return a view of every image.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 27)`` numbers in [0, 1) to ``(n, 3, size, size)`` bytes.
    """
    crops, place, mirrored, colors = numbers.split([2 * TRIES, 2, 1, 4], 1)
    corners = boxes(crops.unflatten(1, (TRIES, 2)), place, *images.shape[-2:]).tolist()
    cut = (image[:, y : y + h, x : x + w] for image, (y, x, h, w) in zip(images, corners, strict=True))
    views = torch.cat([resize(crop.unsqueeze(0), size) for crop in cut])
    if flip:
        views = torch.where((mirrored < 0.5).view(-1, 1, 1, 1), views.flip(-1), views)
    return jitter_colors(views, colors)


def boxes(crops: Tensor, place: Tensor, height: int, width: int) -> Tensor:
    """Return random crops as top, left, height and width; areas and the logarithms of aspect ratios are uniform.

    Shape: ``(n, tries, 2)`` and ``(n, 2)`` numbers in [0, 1) to ``(n, 4)`` integers.
    """
    area = (SMALLEST_AREA + (LARGEST_AREA - SMALLEST_AREA) * crops[..., 0]) * height * width
    ratio = (math.log(WIDEST) * (2 * crops[..., 1] - 1)).exp()
    tall, wide = (area / ratio).sqrt().round().long(), (area * ratio).sqrt().round().long()
    fits = (tall <= height) & (wide <= width)
    first, any_fits = fits.int().argmax(1, keepdim=True), fits.any(1)
    tall = torch.where(any_fits, tall.gather(1, first).squeeze(1), height)
    wide = torch.where(any_fits, wide.gather(1, first).squeeze(1), width)
    top, left = (place[:, 0] * (height - tall + 1)).long(), (place[:, 1] * (width - wide + 1)).long()
    return torch.stack([top, left, tall, wide], 1)


def jitter_colors(images: Tensor, numbers: Tensor) -> Tensor:
    """Change brightness, contrast and saturation of every image.

    Shape: ``(n, 3, height, width)`` bytes and ``(n, 4)`` numbers in [0, 1) to images of the same shape.
    """
    factors, orders = 1 + JITTER * (2 * numbers[:, :3] - 1), (numbers[:, 3] * len(ORDERS)).long()
    changed = []
    for pixels, of_image, order in zip(images.permute(0, 2, 3, 1).numpy(), factors.tolist(), orders.tolist(), strict=True):
        image = Image.fromarray(pixels)
        for change in ORDERS[order]:
            image = CHANGES[change](image).enhance(of_image[change])
        changed.append(np.asarray(image))
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)


def resize(images: Tensor, size: int) -> Tensor:
    """Scale images to a square. Shape: ``(n, 3, height, width)`` bytes to ``(n, 3, size, size)``."""
    return F.interpolate(images, (size, size), mode="bilinear", antialias=True)


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
        read_contents([WEIGHTS])  # verifies it
    path = Path(weights) if weights else fetch(WEIGHTS) if origin == "published" else WEIGHTS.path.with_name(BACKBONE)
    return read_encoder(path).eval().requires_grad_(False)


def read_encoder(path: Path) -> Resnet18:
    """Return a ResNet-18 with the weights in a file, by torchvision's names; its last layer is not read."""
    with torch.random.fork_rng(devices=[]):  # the layers draw initial weights
        network = Resnet18()
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
        expected = [name for name in network.state_dict() if not name.endswith("batches_tracked")]
        network.load_state_dict({name: values[name] for name in expected}, strict=False)
    except Exception as error:  # a damaged file may raise anything, with a message of many lines
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise UserError(f"{path} has no weights of a ResNet-18 ({reason}); give torchvision's file") from None
    return network


def encode_photographs(
    folder: Path, files: Mapping[str, Sequence[Path]], weights: str | None, digest: str, shown: bool | None = None
) -> Tensor:
    """Return the features of photographs, scaled to 256 with the central 224 × 224 cut out; ``folder`` stores them.

    Shape: ``(files, 512)``, float16, in the order of the files.
    """

    def decode(paths: Sequence[Path]) -> Tensor:
        edge = (SCALED - SEEN) // 2
        images = [torch.from_numpy(decode_image(path.read_bytes(), str(path), SCALED)) for path in paths]
        return torch.stack(images)[..., edge : edge + SEEN, edge : edge + SEEN].contiguous()

    parts = [paths[first : first + BATCH] for paths in files.values() for first in range(0, len(paths), BATCH)]
    batches: list[Batch] = [(len(part), partial(decode, part)) for part in parts]
    return encode_batches(folder, batches, partial(load_encoder, weights, digest), shown)


def encode_batches(
    folder: Path, batches: Sequence[Batch], encoder: Callable[[], Resnet18], shown: bool | None = None
) -> Tensor:
    """Return the features of all images, encoding the batches that are not in the folder yet.

    Shape: ``(images of all batches, 512)``, float16.
    """
    file, ends = folder / "features", [0, *accumulate(count for count, _ in batches)]
    if not (file.is_file() and file.stat().st_size >= ends[-1] * ROW_BYTES):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"), file.open("ab") as opened, count_progress(shown) as begin:
            complete = bisect_right(ends, opened.tell() // ROW_BYTES) - 1
            if complete < len(batches):  # another process may have written more in the meantime
                opened.truncate(ends[complete] * ROW_BYTES)
            device = present_device()
            network, advance = fold_batch_norms(encoder()).to(device), begin("encoding images", ends[-1], ends[complete])
            missing = (images for _, images in batches[complete:])
            for rows in map_in_threads(partial(_encode_batch, network, device), missing):
                opened.write(rows.numpy().astype(TYPE, copy=False).tobytes())
                opened.flush()
                advance(len(rows))
    return torch.from_numpy(np.memmap(file, TYPE, "c", shape=(ends[-1], FEATURES)))  # copy-on-write


def _encode_batch(network: nn.Module, device: torch.device, images: Callable[[], Tensor]) -> Tensor:
    """Return features as float16, whose rounding is far below the difference between two views (80 % of their length)."""
    with torch.no_grad():
        features: Tensor = network(_normalized(images(), device)).half().cpu()
    if not bool(features.isfinite().all()):
        raise UserError("the encoder's features of some images are not finite in float16; use other weights")
    return features


def _normalized(images: Tensor, device: torch.device) -> Tensor:
    return normalizer("imagenet")(images.to(device)).contiguous(memory_format=torch.channels_last)
