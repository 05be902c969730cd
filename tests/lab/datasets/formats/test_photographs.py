"""Caltech-101, Cars, Flowers and folders of images, in files laid out as published."""

from __future__ import annotations

import io
import logging
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from boolit.errors import UserError
from boolit.lab.datasets import load, source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.images import decode_image, images_by_class
from boolit.lab.datasets.images.photographs import Caltech101, Cars, Flowers

Publish = Callable[..., None]
CLASSES = [f"class {number:03d}" for number in range(101)]


def loaded(**table: Any) -> Dataset:
    return load(source(table))


def jpeg(level: int, mode: str = "RGB", size: tuple[int, int] = (12, 9)) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, level if mode == "L" else (level,) * 3).save(buffer, "JPEG")
    return buffer.getvalue()


def tarball(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def caltech_zip(classes: int = 101) -> bytes:
    """Write caltech-101.zip as data.caltech.edu has it (listed by tensorflow_datasets and torchvision).

    It also has __MACOSX/caltech-101/._101_ObjectCategories.tar.gz, which is an AppleDouble file and not an archive.
    """
    images = {
        f"101_ObjectCategories/{name}/image_{n:04d}.jpg": jpeg(2 * k)
        for k, name in enumerate(CLASSES[:classes])
        for n in range(4)
    }
    images["101_ObjectCategories/BACKGROUND_Google/image_0001.jpg"] = jpeg(255)
    images["101_ObjectCategories/BACKGROUND_Google/tmp"] = b""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("__MACOSX/caltech-101/._101_ObjectCategories.tar.gz", b"\0\5\x16\7\0\2\0\0Mac OS X        ")
        archive.writestr("caltech-101/101_ObjectCategories.tar.gz", tarball(images))
        archive.writestr("caltech-101/Annotations.tar", b"")
        archive.writestr("caltech-101/show_annotation.m", b"")
    return buffer.getvalue()


def test_caltech101_as_published(publish: Publish, caplog: pytest.LogCaptureFixture) -> None:
    publish("caltech101", {"caltech-101.zip": caltech_zip()})
    with caplog.at_level(logging.WARNING):
        data = loaded(name="caltech101", size=8)
    assert "caltech-101.zip has no published hash; it is read as it is" in caplog.text
    assert sum(len(split) for split in data.splits.values()) == 404
    for split in data.splits.values():
        assert (split.x[:, 0, 4, 4].long() - 2 * split.y).abs().max() <= 2  # the shade is that of the class
    assert sorted(data.splits) == ["test", "train", "valid"]


def test_an_archive_with_another_hash_is_read_with_a_note(publish: Publish, caplog: pytest.LogCaptureFixture) -> None:
    publish("caltech101", {"caltech-101.zip": caltech_zip()}, hash="md5:3138e1922a9193bfa496528edbbc45d0")
    with caplog.at_level(logging.WARNING):
        loaded(name="caltech101", size=9)
    assert "is not the published archive (its hash differs); it is read as it is" in caplog.text


def test_a_caltech_archive_with_too_few_classes_is_refused(publish: Publish) -> None:
    publish("caltech101", {"caltech-101.zip": caltech_zip(2)})
    with pytest.raises(UserError, match=r"has images of 2 classes, not of 101; run `boolit fetch caltech101`, or put"):
        loaded(name="caltech101")


def test_spinalnets_folders_of_caltech101(folder: Path) -> None:
    """The Kaggle dataset huangruichu/caltech101 has folders train, val and test with 101 classes each."""
    for part, count in (("train", 3), ("val", 1), ("test", 2)):
        for number, name in enumerate(CLASSES):
            for image in range(count):
                path = folder / "caltech101" / part / name / f"image_{image:04d}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(jpeg(2 * number))
    wanted = source({"name": "caltech101", "size": 8})
    assert wanted.model_dump()["split"] == "spinalnet"
    splits = load(wanted).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 303, "valid": 101, "test": 202}
    test = splits["test"]
    assert (test.x[:, 0, 4, 4].long() - 2 * test.y).abs().max() <= 2
    assert source({"name": "caltech101", "split": "random"}) != wanted


def annotations(names: list[str], labels: list[int]) -> bytes:
    """Write devkit/cars_*_annos.mat: a 1 × n struct array with the bounding box, the class from 1 on and the file name."""
    fields = [(key, object) for key in ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")]
    records = np.array([[(1, 1, 5, 5, label, name) for name, label in zip(names, labels, strict=True)]], dtype=fields)
    buffer = io.BytesIO()
    savemat(buffer, {"annotations": records})
    return buffer.getvalue()


def cars_files() -> dict[str, bytes]:
    names = [f"{number:05d}.jpg" for number in range(1, 11)]
    shades = {
        f"{part}/{name}": jpeg(20 * n, "L" if n % 2 else "RGB")
        for part in ("cars_train", "cars_test")
        for n, name in enumerate(names)
    }
    labels = [1, 2] * 5
    return shades | {
        "devkit/cars_train_annos.mat": annotations(names, labels),
        "cars_test_annos_withlabels.mat": annotations(names[::-1], labels),
    }


@pytest.mark.parametrize("place", ["cars", "cars/stanford_cars", "stanford_cars", "archives"])
def test_cars_in_torchvisions_folder_or_archives(publish: Publish, place: str) -> None:
    """The layout of torchvision.datasets.StanfordCars, whose archives are no longer at their address; grey pictures occur."""
    files = cars_files()
    if place == "archives":
        groups = {
            name: {k: v for k, v in files.items() if k.startswith(f"{name}/")} for name in ("cars_train", "cars_test", "devkit")
        }
        files = {"cars_test_annos_withlabels.mat": files["cars_test_annos_withlabels.mat"]}
        files |= {f"{'car_' if name == 'devkit' else ''}{name}.tgz": tarball(group) for name, group in groups.items()}
    publish("cars", {f"../{'cars' if place == 'archives' else place}/{name}": content for name, content in files.items()})
    data = loaded(name="cars", size=8)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 10, "test": 10}
    assert data.splits["test"].y.tolist() == [0, 1] * 5
    assert (data.splits["test"].x[:, 0, 4, 4].long() - torch.arange(180, -20, -20)).abs().max() <= 3


def flowers_files(copies: int = 10) -> dict[str, bytes]:
    """Write www.robots.ox.ac.uk/~vgg/data/flowers/102: labels 1 … 102 as a row, images numbered from 1."""
    labels = [102, 1] * copies
    buffer = io.BytesIO()
    savemat(buffer, {"labels": np.array([labels], np.uint8)})
    images = {f"jpg/image_{n:05d}.jpg": jpeg(2 * label) for n, label in enumerate(labels, start=1)}
    return {"imagelabels.mat": buffer.getvalue(), "102flowers.tgz": tarball(images)}


def test_flowers(publish: Publish) -> None:
    publish("flowers", flowers_files())
    data = loaded(name="flowers", size=8)
    assert [len(data.splits[name]) for name in ("train", "valid", "test")] == [17, 2, 1]  # 6,552 : 819 : 818
    assert sorted(torch.cat([split.y for split in data.splits.values()]).tolist()) == [0] * 10 + [101] * 10
    for split in data.splits.values():
        assert (split.x[:, 0, 4, 4].long() - 2 * (split.y + 1)).abs().max() <= 3


def test_published_mat_files_are_compared_by_hash(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Flowers.files
    publish("flowers", flowers_files())
    monkeypatch.setattr(Flowers, "files", before)
    with pytest.raises(UserError, match=r"is not as published: the content of imagelabels.mat has another hash"):
        loaded(name="flowers")


def test_what_must_be_fetched_by_hand_is_said(folder: Path) -> None:
    with pytest.raises(UserError, match=r"car_devkit.tgz of cars has to be fetched by hand; put .*stanford_cars/ is"):
        source({"name": "cars"}).load()
    assert folder.exists() is False
    assert all(not file.urls for file in Cars.files)
    assert Caltech101.files[0].inner == "caltech-101/101_ObjectCategories.tar.gz"


@pytest.mark.parametrize("name", ["none", "one"])
def test_folders_without_two_classes_are_refused(tmp_path: Path, name: str) -> None:
    if name == "one":
        (tmp_path / name / "cat").mkdir(parents=True)
        (tmp_path / name / "cat" / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"is not a folder|in 1 of its folders"):
        images_by_class(tmp_path / name)


@pytest.mark.parametrize(
    ("mode", "color", "expected"),
    [
        ("RGB", (9, 99, 199), (9, 99, 199)),
        ("L", 77, (77,) * 3),
        ("RGBA", (0, 0, 0, 0), (255,) * 3),
        ("I;16", 256 * 40, (40,) * 3),
    ],
)
def test_images_of_all_modes_are_decoded(mode: str, color: Any, expected: tuple[int, ...]) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (20, 10), color).save(buffer, "PNG")
    assert decode_image(buffer.getvalue(), "a.png", 4)[:, 2, 2].tolist() == list(expected)


def test_the_central_square_is_cut_and_scaled() -> None:
    image = np.zeros((10, 30, 3), np.uint8)
    image[:, 10:20] = 200
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    assert (decode_image(buffer.getvalue(), "a.png", 5)[..., 1:-1] == 200).all()


def test_a_damaged_image_is_named() -> None:
    with pytest.raises(UserError, match=r"dog/a.jpg cannot be decoded \(.*replace or remove it"):
        decode_image(jpeg(9)[:-40], "dog/a.jpg", 4)
