"""Images to features by a frozen ResNet-18, its batch norms refreshed on new images; encoded once, kept as mapped memory.

A file holds one row after the other. Its length says how far it is, so that a killed process loses a batch at most, and more
views of the same images, which come last, cost no more than these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from boolit.errors import UserError
from boolit.lab.common.devices import present_device
from boolit.lab.common.files import atomic_write
from boolit.lab.common.parallel import map_in_threads
from boolit.lab.common.progress import Begin, count_progress
from boolit.lab.datasets.features.views import ViewPlan
from boolit.lab.datasets.features.weights import resnet18_weights
from boolit.lab.datasets.images.base import normaliser
from boolit.lab.models.resnet18 import FEATURES, Resnet18, fold_batch_norms

CPU = torch.device("cpu")
STATISTICS = ("running_mean", "running_var")
Statistics: TypeAlias = dict[str, Tensor]


def load_encoder(weights: Path | None) -> Resnet18:
    """The network with the published weights, or those of a file."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw weights that are replaced at once
        network = Resnet18()
    network.load_state_dict(resnet18_weights(weights))
    return network.eval().requires_grad_(False)


def batch_statistics(network: Resnet18, images: Tensor, device: torch.device = CPU) -> Statistics:
    """Mean and variance of what enters every batch norm, on one batch that is normalised by its own.

    Shape: ``(n, 3, size, size)`` bytes.
    """
    own = copy.deepcopy(network).train()
    for layer in own.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # after one batch, its statistics
    own.to(device)
    with torch.no_grad():
        own(_read(images, device))
    return {name: values.cpu() for name, values in own.state_dict().items() if name.endswith(STATISTICS)}


def refresh(network: Resnet18, found: Iterable[Statistics]) -> Statistics:
    """Replaces the statistics of all batch norms by their mean over some batches, and returns it; the weights stay.

    NOTE[paper]: "one epoch worth of inputs" does not say how batches are weighted. All count alike here; with torch's default,
    which is a fading memory, the last twenty would decide, and a small dataset would leave a share of ImageNet's statistics.
    """
    sums: Statistics = {}
    batches = 0
    for statistics in found:
        sums = {name: sums.get(name, 0) + values.double() for name, values in statistics.items()}
        batches += 1
    means = {name: (values / batches).float() for name, values in sums.items()}
    network.load_state_dict(means, strict=False)
    return means


class Features:
    """A network's features of images, as float16.

    Its steps of 0.05 % are far below what two views of an image differ by (on CIFAR-10 by 80 % of their length), its range far
    above the features (25 at most there), and half the bytes are read in every step.

    Shape: ``(n, 3, size, size)`` bytes to ``(n, 512)``.
    """

    def __init__(self, network: Resnet18, device: torch.device = CPU) -> None:
        self._network, self._device = fold_batch_norms(network).to(device), device

    def __call__(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            features: Tensor = self._network(_read(images, self._device)).half().cpu()
        if not bool(features.isfinite().all()):
            raise UserError("the encoder's features of some images are no finite numbers in float16; use other weights")
        return features


def _read(images: Tensor, device: torch.device) -> Tensor:
    return normaliser("imagenet")(images.to(device)).contiguous(memory_format=torch.channels_last)


TYPE = np.dtype("<f2")
ROW_BYTES = FEATURES * TYPE.itemsize


def encode_views(
    folder: Path, plan: ViewPlan, views: int, encoder: Callable[[], Resnet18], refreshed: bool, shown: bool
) -> Tensor:
    """The features of all views, encoded now where they are not in the folder; ``shown`` says whether a bar tells how far.

    Views are cut on the CPU, and the network sees them on the present device.

    Shape: ``(views of all images, 512)``, float16, in the order of `ViewPlan.pieces`.
    """
    file, rows = folder / "features", plan.count(views)
    try:
        if not (file.is_file() and file.stat().st_size >= rows * ROW_BYTES):
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / "lock"), count_progress(shown, unit="pictures") as begin:
                device = present_device()
                _encode(file, plan, views, _network(folder, plan, encoder(), refreshed, device, begin), device, begin)
        # Copied on writing, as torch has no tensors that cannot be written to.
        return torch.from_numpy(np.memmap(file, TYPE, "c", shape=(rows, FEATURES)))
    except OSError as error:
        fault = f"{rows * ROW_BYTES / 1e6:,.0f} MB of features cannot be kept in {folder} ({error.strerror or error})"
        raise UserError(f"{fault}; make room there, or set BOOLIT_DATA to another folder") from None


def _encode(file: Path, plan: ViewPlan, views: int, network: Resnet18, device: torch.device, begin: Begin) -> None:
    features, total = Features(network, device), plan.count(views)
    with file.open("ab") as opened:
        done = min(total, opened.tell() // ROW_BYTES)
        if done < total:  # what another process made while this one waited may be longer
            opened.truncate(done * ROW_BYTES)
        advance = begin("encoding images", total, done)
        for rows in map_in_threads(lambda batch: features(plan.views(batch)), plan.batches(views, done)):
            opened.write(rows.numpy().astype(TYPE, copy=False).tobytes())
            opened.flush()
            advance(len(rows))


def _network(folder: Path, plan: ViewPlan, network: Resnet18, refreshed: bool, device: torch.device, begin: Begin) -> Resnet18:
    """The encoder with the statistics of its batch norms refreshed, or with those that an earlier start found."""
    kept = folder / "statistics.safetensors"
    if not refreshed:
        return network
    if kept.is_file():
        network.load_state_dict(load_file(kept), strict=False)
        return network
    advance = begin("refreshing batch norms", len(plan.splits["train"]), 0)

    def found(rows: Tensor) -> Statistics:
        statistics = batch_statistics(network, plan.refresh_views(rows), device)
        advance(len(rows))
        return statistics

    with atomic_write(kept) as part:
        save_file(refresh(network, map_in_threads(found, plan.refresh_batches())), part)
    return network
