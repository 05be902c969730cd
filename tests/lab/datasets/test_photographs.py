"""Flowers, Caltech-101, Stanford Cars and a user's images: small ones, named and read_annotations as the published ones."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from boolit.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.download.published import PublishedDataset
from boolit.lab.datasets.images import archive as _album
from boolit.lab.datasets.images.photographs import Caltech101, Cars, Flowers

SIDE = 8
Keep = Callable[[type[PublishedDataset], dict[str, bytes]], None]


def image(number: int, kind: str = "PNG") -> bytes:
    """An image of one colour, by which it is known again; PNG, so that it is exact, whatever the name ends with."""
    content = io.BytesIO()
    Image.new("RGB", (12, 10), (number % 256, number // 256, 7)).save(content, kind)
    return content.getvalue()


def numbers(data: Dataset) -> dict[str, list[int]]:
    """The numbers of the images in every split."""
    assert all((split.x.dtype, tuple(split.x.shape[1:])) == (torch.uint8, (3, SIDE, SIDE)) for split in data.splits.values())
    return {name: [int(x[0, 0, 0]) + 256 * int(x[1, 0, 0]) for x in split.x] for name, split in data.splits.items()}


def everyones(data: Dataset) -> list[int]:
    """The numbers of all images."""
    return sorted(number for part in numbers(data).values() for number in part)


def matlab(**variables: object) -> bytes:
    content = io.BytesIO()
    savemat(content, variables)
    return content.getvalue()


def tarball(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("caltech-101/101_ObjectCategories.tar.gz", tarball(files))
    return packed.getvalue()


@pytest.fixture(params=["packed", "unpacked"])
def keep(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """Puts a dataset's files where they are looked for, packed or not, and makes their hashes the published ones."""

    def keep(kind: type[PublishedDataset], files: dict[str, bytes]) -> None:
        known = []
        for published in kind.files:
            inside = {
                name: content for name, content in files.items() if name.startswith(f"{published.unpacked or published.name}/")
            }
            content = (zipped if published.name.endswith(".zip") else tarball)(inside) if inside else files[published.name]
            digest = hashlib.sha256(content).hexdigest()
            known.append(dataclasses.replace(published, sha256=digest, size=len(content)))
            kept = inside if inside and request.param == "unpacked" else {published.name: content}
            for name, held in kept.items():
                (published.path.parent / name).parent.mkdir(parents=True, exist_ok=True)
                (published.path.parent / name).write_bytes(held)
        monkeypatch.setattr(kind, "files", tuple(known))
        assert folder.is_dir()

    return keep


def flowers(count: int = 40) -> dict[str, bytes]:
    files = {f"jpg/image_{number:05d}.jpg": image(number) for number in range(1, count + 1)}
    files["imagelabels.mat"] = matlab(labels=np.array([[1 + number % 2 for number in range(1, count + 1)]], np.uint8))
    files["setid.mat"] = matlab(trnid=np.array([[4, 2]]), valid=np.array([[9]]), tstid=np.array([[7, 8, 1]]))
    return files


def test_flowers_are_split_as_in_the_paper(keep: Keep) -> None:
    keep(Flowers, flowers())
    data = source({"name": "flowers", "size": SIDE}).load()
    found = numbers(data)
    assert everyones(data) == list(range(1, 41))
    assert {name: len(part) for name, part in found.items()} == {"train": 33, "valid": 4, "test": 3}
    for name, split in data.splits.items():
        assert split.y.tolist() == [number % 2 for number in found[name]]
    assert (data.outputs, data.inputs) == (102, (3, SIDE, SIDE))
    assert numbers(source({"name": "flowers", "size": SIDE}).load()) == found
    half = numbers(source({"name": "flowers", "size": SIDE, "subset": 0.5}).load())
    assert half["train"] == found["train"][: len(found["train"]) // 2]


def test_flowers_have_their_official_split_too(keep: Keep) -> None:
    keep(Flowers, flowers())
    assert numbers(source({"name": "flowers", "size": SIDE, "split": "official"}).load()) == {
        "train": [4, 2],
        "valid": [9],
        "test": [7, 8, 1],
    }


def test_the_papers_numbers_are_all_images_there_are() -> None:
    assert sum(Flowers.samples.values()) == 8_189
    assert sum(Caltech101.samples.values()) == 8_677
    assert (Flowers.samples["train"], Flowers.samples["test"]) == (6_552, 818)
    assert (Caltech101.samples["train"], Caltech101.samples["test"]) == (6_162, 1_695)


def caltech() -> dict[str, bytes]:
    names = [f"{category}/image_{number:04d}.jpg" for category in ("ant", "Faces", "BACKGROUND_Google") for number in range(15)]
    files = {f"101_ObjectCategories/{name}": image(number) for number, name in enumerate(names)}
    return files | {"101_ObjectCategories/BACKGROUND_Google/tmp": b"x", "101_ObjectCategories/ant/._image_0001.jpg": b"x"}


def test_caltechs_classes_are_its_folders_without_the_clutter(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(Caltech101, caltech())
    monkeypatch.setattr(Caltech101, "classes", 2)
    for _ in range(2):  # made, and kept
        data = source({"name": "caltech101", "size": SIDE}).load()
        found = numbers(data)
        assert everyones(data) == list(range(30))
        for name, split in data.splits.items():
            assert split.y.tolist() == [int(number < 15) for number in found[name]]  # "Faces" sorts before "ant"
        assert {name: len(part) for name, part in found.items()} == {"train": 23, "valid": 2, "test": 5}


def test_a_class_that_is_missing_is_told(keep: Keep) -> None:
    keep(Caltech101, caltech())
    with pytest.raises(UserError, match=r"has images of 2 classes in 101_ObjectCategories, not of 101; run `boolit data fetch"):
        source({"name": "caltech101", "size": SIDE}).load()


def cars() -> dict[str, bytes]:
    files = {}
    for part, first, file in (
        ("train", 0, "devkit/cars_train_annos.mat"),
        ("test", 50, "cars_test_annos_withlabels.mat"),
    ):
        names = [f"{number:05d}.jpg" for number in range(1, 11)]
        fields = [("bbox_x1", object), ("class", object), ("fname", object)]
        records = np.array([[(9, 1 + number % 2, name) for number, name in enumerate(names)]], fields)
        files |= {f"cars_{part}/{name}": image(first + number) for number, name in enumerate(names)}
        files[file] = matlab(annotations=records)
    return files


def test_cars_have_the_published_split_and_annotations(keep: Keep) -> None:
    keep(Cars, cars())
    data = source({"name": "cars", "size": SIDE}).load()
    assert numbers(data) == {"train": list(range(10)), "test": list(range(50, 60))}
    assert data.splits["train"].y.tolist() == data.splits["test"].y.tolist() == [0, 1] * 5
    assert data.outputs == 196
    held = source({"name": "cars", "size": SIDE, "validation": 0.2}).load()
    found = numbers(held)
    assert sorted(found["train"] + found["valid"]) == list(range(10))
    assert sorted(held.splits["valid"].y.tolist()) == [0, 1]


def test_cars_that_are_not_here_are_told_where_to_go(folder: Path) -> None:
    with pytest.raises(UserError, match=r"cars_train\.tgz of cars is not here.*put the published.* cars_train/, into"):
        source({"name": "cars"}).load()
    assert not folder.exists()


def test_an_archive_is_verified_before_it_is_decoded(keep: Keep) -> None:
    keep(Flowers, flowers())
    (images, *_) = Flowers.files
    if images.path.is_file():
        images.path.write_bytes(tarball({**flowers(), "jpg/image_00001.jpg": image(77)}))
        with pytest.raises(UserError, match=r"was altered|holds more than|is cut off"):
            source({"name": "flowers", "size": SIDE}).load()


def test_a_image_that_is_missing_or_broken_is_named(keep: Keep, folder: Path) -> None:
    files = flowers()
    del files["jpg/image_00003.jpg"]
    keep(Flowers, files)
    with pytest.raises(UserError, match=r"lacks the image jpg/image_00003\.jpg"):
        source({"name": "flowers", "size": SIDE}).load()
    keep(Flowers, files | {"jpg/image_00003.jpg": image(3)[:45]})
    with pytest.raises(UserError, match=r"jpg/image_00003\.jpg (in .*102flowers\.tgz )?cannot be decoded"):
        source({"name": "flowers", "size": SIDE}).load()
    assert [path.name for path in folder.rglob("*.part")] == []


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Path:
    """Three classes of 10, 20 and 30 images in all the formats."""
    assert not folder.exists()
    for number in range(60):
        category, suffix = "abb"[number % 3 > 0] if number < 30 else "c", ("jpg", "PNG", "webp", "bmp")[number % 4]
        path = tmp_path / "mine" / category / ("deep" if number % 5 == 0 else ".") / f"{number}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))
    (tmp_path / "mine" / "notes.txt").write_text("no class")
    (tmp_path / "mine" / "a" / "notes.txt").write_text("no image")
    (tmp_path / "mine" / ".hidden").mkdir()
    return tmp_path / "mine"


def of_mine(mine: Path, **options: object) -> Dataset:
    return source({"name": "pictures", "path": str(mine), "size": SIDE, **options}).load()


def test_a_folder_of_folders_is_a_dataset(mine: Path) -> None:
    data = of_mine(mine)
    found = numbers(data)
    assert everyones(data) == list(range(60))
    assert {name: len(part) for name, part in found.items()} == {"train": 42, "valid": 6, "test": 12}
    assert [part.y.bincount().tolist() for part in data.splits.values()] == [[7, 14, 21], [1, 2, 3], [2, 4, 6]]
    for name, split in data.splits.items():
        expected = [2 if number >= 30 else int(number % 3 > 0) for number in found[name]]
        assert split.y.tolist() == expected
    assert (data.task, data.outputs) == ("classes", 3)
    assert numbers(of_mine(mine, seed=1)) != found


def test_images_are_decoded_once(mine: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of_mine(mine)
    (kept,) = (folder / "pictures" / "decoded").iterdir()
    first.splits["train"].x.zero_()  # the kept ones are not written to
    monkeypatch.setattr(_album, "decode_all", None)
    assert everyones(of_mine(mine)) == list(range(60))
    moved = mine.rename(mine.with_name("moved")).rename(mine)
    os.utime(mine / "c" / "deep" / "30.webp", (0, 0))
    of_mine(moved)
    monkeypatch.undo()
    monkeypatch.setenv("BOOLIT_DATA", str(folder))
    kept.write_bytes(kept.read_bytes()[:-1])
    assert everyones(of_mine(mine)) == list(range(60))


def test_a_changed_image_is_other_data(mine: Path) -> None:
    before = source({"name": "pictures", "path": str(mine), "size": SIDE})
    of_mine(mine)
    path = mine / "c" / "33.PNG"
    changed = image(61)
    path.write_bytes(changed)
    after = source({"name": "pictures", "path": str(mine), "size": SIDE})
    assert after != before
    assert 61 in everyones(after.load())
    path.rename(path.with_name("33b.PNG"))
    assert source({"name": "pictures", "path": str(mine), "size": SIDE}) != after


def test_a_broken_image_of_mine_is_named_with_its_path(mine: Path, folder: Path) -> None:
    (mine / "c" / "33.PNG").write_bytes(image(33)[:45])
    with pytest.raises(UserError) as error:
        of_mine(mine)
    assert str(error.value).startswith(f"{mine / 'c' / '33.PNG'} cannot be decoded (")
    assert list((folder / "pictures" / "decoded").iterdir()) == []


def test_folders_that_are_no_dataset_are_told(tmp_path: Path, mine: Path) -> None:
    with pytest.raises(ValueError, match="is no folder; give one that has a folder of images for each class"):
        of_mine(tmp_path / "lost")
    with pytest.raises(ValueError, match=r"has images \(.jpg, .jpeg, .png, .webp, .bmp\) in 1 of its folders"):
        of_mine(mine / "a")
    with pytest.raises(UserError, match=r"has 60 images, of which test = 0.6 and validation = 0.4 leave none"):
        of_mine(mine, test=0.6, validation=0.4)


def test_a_full_disk_is_told(mine: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match=r"0 MB of decoded images cannot be kept in .*No space left on device.*set BOOLIT_DATA"):
        of_mine(mine)
    assert list((folder / "pictures" / "decoded").iterdir()) == []
