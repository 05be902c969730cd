"""CIFAR, SVHN and STL-10: tiny files in their real formats."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from boolit.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.download.published import PublishedFile, md5_of
from boolit.lab.datasets.images.base import FixedSizeImageDataset
from boolit.lab.datasets.images.cifar import Cifar10, Cifar100, arrays_digest
from boolit.lab.datasets.images.stl10 import Stl10
from boolit.lab.datasets.images.svhn import Svhn
from boolit.lab.datasets.status import file_state

EACH = 10  # images in each batch
Keep = Callable[[type[FixedSizeImageDataset], dict[str, bytes]], Path]


def pixels(seed: int, count: int = EACH, side: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, side, side), dtype=np.uint8)


def cifar10_files() -> dict[str, bytes]:
    names = list(Cifar10.files[0].members)
    return {
        name: pickle.dumps({b"data": pixels(seed).reshape(EACH, -1), b"labels": list(range(10))}, 2)
        for seed, name in enumerate(names)
    }


def cifar100_files() -> dict[str, bytes]:
    def batch(seed: int) -> bytes:
        held = {b"data": pixels(seed).reshape(EACH, -1), b"fine_labels": list(range(90, 100)), b"coarse_labels": [1] * EACH}
        return pickle.dumps(held, 2)

    return {"cifar-100-python/train": batch(0), "cifar-100-python/test": batch(1)}


def stl10_files() -> dict[str, bytes]:
    files = {"stl10_binary/unlabeled_X.bin": b"is not read"}
    for seed, part in enumerate(("train", "test")):
        files[f"stl10_binary/{part}_X.bin"] = pixels(seed, side=96).swapaxes(2, 3).tobytes()
        files[f"stl10_binary/{part}_y.bin"] = bytes(range(1, 11))
    return files


@pytest.fixture(params=["tarball", "folder"])
def keep(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Puts files where those of a dataset are looked for, and makes their hashes the published ones."""

    def keep(kind: type[FixedSizeImageDataset], files: dict[str, bytes]) -> Path:
        (published,) = kind.files
        members = {name: _digest(published, name, files[name]) for name in published.members}
        published = dataclasses.replace(published, members=members)
        monkeypatch.setattr(kind, "files", (published,))
        (_pack if request.param == "tarball" else _unpack)(published.path, files)
        assert published.kept is not None
        assert published.kept.is_relative_to(folder)
        return published.kept

    return keep


def _digest(published: PublishedFile, name: str, content: bytes) -> str:
    try:
        return published.hash_member(content)
    except ValueError:  # a content to be refused
        return published.members[name]


def _pack(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _unpack(path: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (path.parent / name).write_bytes(content)


def images_of(data: Dataset) -> dict[str, np.ndarray]:
    assert all((split.x.dtype, split.y.dtype) == (torch.uint8, torch.int64) for split in data.splits.values())
    return {name: split.x.numpy() for name, split in data.splits.items()}


def test_cifar_10_has_five_training_batches_in_order(keep: Keep) -> None:
    keep(Cifar10, cifar10_files())
    data = source({"name": "cifar10"}).load()
    found = images_of(data)
    assert np.array_equal(found["train"], np.concatenate([pixels(seed) for seed in range(5)]))
    assert np.array_equal(found["test"], pixels(5))
    assert data.splits["train"].y.tolist() == list(range(10)) * 5
    assert (data.outputs, data.inputs, data.task) == (10, (3, 32, 32), "classes")


def test_cifar_100_has_the_fine_labels(keep: Keep) -> None:
    keep(Cifar100, cifar100_files())
    data = source({"name": "cifar100"}).load()
    assert np.array_equal(images_of(data)["train"], pixels(0))
    assert data.splits["test"].y.tolist() == list(range(90, 100))
    assert data.outputs == 100


def test_stl_10_is_turned_upright_and_numbered_from_0(keep: Keep) -> None:
    keep(Stl10, stl10_files())
    data = source({"name": "stl10"}).load()
    found = images_of(data)
    assert np.array_equal(found["train"], pixels(0, side=96))
    assert np.array_equal(found["test"], pixels(1, side=96))
    assert data.splits["train"].y.tolist() == list(range(10))
    assert data.inputs == (3, 96, 96)


def test_svhn_comes_from_matlab_and_its_tens_are_noughts(
    publish: Callable[..., PublishedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for seed, known in enumerate(Svhn.files):
        content = io.BytesIO()
        labels = np.arange(1, 11, dtype=np.uint8).reshape(-1, 1)
        savemat(content, {"X": pixels(seed).transpose(2, 3, 1, 0), "y": labels}, do_compression=True)
        files.append(publish("svhn", known.name, content.getvalue()))
    monkeypatch.setattr(Svhn, "files", tuple(files))
    data = source({"name": "svhn"}).load()
    assert np.array_equal(images_of(data)["train"], pixels(0))
    assert np.array_equal(images_of(data)["test"], pixels(1))
    assert data.splits["test"].y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_a_matlab_file_that_is_none_is_told(publish: Callable[..., PublishedFile], monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tuple(publish("svhn", known.name, b"<html>" * 40) for known in Svhn.files)
    monkeypatch.setattr(Svhn, "files", broken)
    with pytest.raises(UserError, match=r"train_32x32\.mat is no whole MATLAB file"):
        source({"name": "svhn"}).load()


class Hostile:
    def __init__(self, function: Any, argument: str) -> None:
        self.call = function, (argument,)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("place", ["data", "labels", "all"])
def test_a_hostile_batch_is_refused_without_running_its_code(keep: Keep, place: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    for call in (Hostile(os.system, f"touch {mark}"), Hostile(eval, touch)):
        held = {b"data": pixels(0).reshape(EACH, -1), b"labels": list(range(10))}
        hostile = call if place == "all" else held | {place.encode(): call}
        path = keep(Cifar10, cifar10_files() | {"cifar-10-batches-py/data_batch_3": pickle.dumps(hostile, 2)})
        with pytest.raises(UserError) as error:
            source({"name": "cifar10"}).load()
        assert str(error.value).startswith(f"{path} holds cifar-10-batches-py/data_batch_3, which calls ")
        assert "boolit data fetch cifar10" in str(error.value)
        assert "\n" not in str(error.value)
    assert not mark.exists()


def test_how_a_batch_was_pickled_does_not_matter(keep: Keep) -> None:
    files = cifar10_files()
    keep(Cifar10, files)
    (published,) = Cifar10.files
    anew = {name: pickle.dumps(pickle.loads(content) | {b"filenames": [b"x.png"]}, 4) for name, content in files.items()}
    assert all(md5_of(anew[name]) != md5_of(content) for name, content in files.items())
    assert all(arrays_digest(anew[name]) == arrays_digest(content) for name, content in files.items())
    (_pack if published.path.is_file() else _unpack)(published.path, anew)
    assert file_state(published).state == "whole"


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        ({b"data": pixels(0).reshape(EACH, -1)}, "is no batch of images with fine_labels"),
        ({b"data": pixels(0).reshape(EACH, -1), b"fine_labels": [0]}, "has 10 images, but labels of the shape"),
        ({b"data": np.zeros((2, 7), np.uint8), b"fine_labels": [0, 1]}, "is no batch of images"),
        ({b"data": b"text", b"fine_labels": [0, 1]}, "is no batch of images"),
        ([1, 2], "is no batch of images"),
    ],
)
def test_a_batch_of_another_shape_is_told(keep: Keep, held: object, fault: str) -> None:
    keep(Cifar100, cifar100_files() | {"cifar-100-python/test": pickle.dumps(held, 2)})
    with pytest.raises(UserError, match=f"cifar-100-python/test {fault}"):
        source({"name": "cifar100"}).load()


def test_other_pixels_are_noticed(keep: Keep) -> None:
    files = cifar10_files()
    keep(Cifar10, files)
    (published,) = Cifar10.files
    name = "cifar-10-batches-py/test_batch"
    altered = pickle.loads(files[name])
    altered[b"data"][3, 5] ^= 1
    (_pack if published.path.is_file() else _unpack)(published.path, files | {name: pickle.dumps(altered, 2)})
    with pytest.raises(UserError, match="was altered: the hash of cifar-10-batches-py/test_batch"):
        source({"name": "cifar10"}).load()


def test_validation_has_the_same_share_of_every_class(keep: Keep) -> None:
    keep(Cifar10, cifar10_files())
    whole = source({"name": "cifar10"}).load().splits["train"]
    splits = source({"name": "cifar10", "validation": 0.2, "subset": 0.5}).load().splits
    assert splits["valid"].y.bincount().tolist() == [1] * 10
    assert len(splits["train"]) == 20
    kept = {bytes(image.flatten().tolist()): int(label) for image, label in zip(whole.x, whole.y, strict=True)}
    for split in (splits["valid"], splits["train"]):
        for image, label in zip(split.x, split.y, strict=True):
            assert kept.pop(bytes(image.flatten().tolist())) == int(label)
    again = source({"name": "cifar10", "validation": 0.2}).load().splits
    assert torch.equal(again["valid"].x, splits["valid"].x)
    assert torch.equal(again["train"].x[:20], splits["train"].x)


@pytest.mark.parametrize(
    ("kind", "mean", "deviation"),
    [("half", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))],
)
def test_pixels_are_normalised_by_colour(keep: Keep, kind: str, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
    keep(Cifar100, cifar100_files())
    data = source({"name": "cifar100", "normalisation": kind}).load()
    x = data.splits["train"].x[:6].view(2, 3, 3, 32, 32)
    by_hand = (x.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(deviation).view(3, 1, 1)
    assert data.encode(x).dtype == torch.float32
    assert torch.allclose(data.encode(x).double(), by_hand, atol=1e-6)
    assert torch.equal(data.encode(x.float()), data.encode(x))


def test_the_defaults_are_the_papers() -> None:
    assert source({"name": "cifar10"}).model_dump() == {
        "name": "cifar10",
        "validation": 0.0,
        "subset": 1.0,
        "normalisation": "half",
    }
    assert source({"name": "svhn"}).model_dump()["normalisation"] == "imagenet"
