"""MIT-States from its files: pairs, splits, features of the middle of every picture, words; and what is said of bad files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from boolit.errors import UserError
from boolit.lab.common.random import keys
from boolit.lab.datasets import source
from boolit.lab.datasets.composition.base import CompositionalDataset
from boolit.lab.datasets.composition.mitstates import GLOVE, MitStates
from boolit.lab.datasets.composition.mitstates_files import METADATA, SPLIT
from boolit.lab.datasets.features.encoder import ROW_BYTES, Features, load_encoder
from boolit.lab.datasets.features.views import PhotographPlan
from boolit.lab.datasets.status import dataset_statuses

Make = Callable[..., MitStates]
LISTED = [("old", "bear"), ("old", "cat"), ("tiny", "bear"), ("tiny", "cat"), ("tiny", "dog"), ("wet", "bear"), ("wet", "cat")]
LISTED += [("wet", "dog")]


def table(home: Path, **options: Any) -> dict[str, Any]:
    files = {"path": str(home / "mit-states"), "vectors": str(home / "words.txt"), "weights": str(home / "weights.pth")}
    return {"name": "mitstates", "negatives": 4} | files | options


@pytest.fixture
def make(home: Path, folder: Path) -> Make:  # noqa: ARG001 (what is kept is kept in the test's own folder)
    def make(**options: Any) -> MitStates:
        made = source(table(home, **options))
        assert isinstance(made, MitStates)
        return made

    return make


@pytest.fixture(scope="module")
def encoded(home: Path, tmp_path_factory: pytest.TempPathFactory) -> CompositionalDataset:
    """The dataset, its pictures encoded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOLIT_DATA", str(tmp_path_factory.mktemp("data")))
        dataset = source(table(home)).load()
        dataset.encode(dataset.splits["train"].x[:1])
    assert isinstance(dataset, CompositionalDataset)
    return dataset


@pytest.fixture
def copied(home: Path, tmp_path: Path) -> Path:
    """A layout to spoil."""
    return Path(shutil.copytree(home / "mit-states", tmp_path / "mit-states"))


def loaded(wanted: MitStates) -> CompositionalDataset:
    dataset = wanted.load()
    assert isinstance(dataset, CompositionalDataset)
    return dataset


def test_splits_have_the_pictures_of_their_pairs_and_no_others(make: Make) -> None:
    dataset = loaded(make())
    assert dataset.pairs.names == LISTED
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 10, "valid": 2, "test": 3}
    assert dataset.outputs == 8
    names = {name: [LISTED[number] for number in split.y.tolist()] for name, split in dataset.splits.items()}
    assert names["valid"] == [("old", "bear"), ("tiny", "bear")]
    assert set(names["train"]) == {LISTED[number] for number in dataset.pairs.seen.tolist()}
    assert {LISTED[number] for number in dataset.pairs.unseen("test").tolist()} == {("tiny", "cat"), ("wet", "cat")}


def test_features_are_of_the_middle_of_every_picture(encoded: CompositionalDataset, home: Path) -> None:
    assert encoded.inputs == (512,)
    file = home / "mit-states" / "images" / "wet bear" / "5.png"  # the first of the third pair
    with Image.open(file) as picture:
        scaled = picture.resize((round(256 * picture.width / picture.height), 256), Image.Resampling.BILINEAR)
    left = (scaled.width - 224) // 2
    cut = np.asarray(scaled.crop((left, 16, left + 224, 240))).transpose(2, 0, 1)
    seen = PhotographPlan.of({"all": [file]}).views(next(PhotographPlan.of({"all": [file]}).batches(0, 0)))
    assert seen.shape == (1, 3, 224, 224)
    assert float((seen[0].float() - torch.from_numpy(cut.copy()).float()).abs().mean()) < 1  # of 255
    expected = Features(load_encoder(home / "weights.pth"))(seen).float()
    assert torch.allclose(encoded.encode(encoded.splits["train"].x[4:5]), expected, rtol=2e-3, atol=1e-4)


def test_nothing_is_encoded_before_it_is_wanted_and_nothing_twice(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = loaded(make())
    assert not (folder / "embeddings").exists()
    first = dataset.encode(dataset.splits["valid"].x)
    (kept,) = (folder / "embeddings").glob("*/features")
    assert kept.stat().st_size == 15 * ROW_BYTES
    monkeypatch.setattr(Features, "__call__", lambda *_: pytest.fail("the features are there"))
    make().prepare()
    again = loaded(make())
    assert torch.equal(again.encode(again.splits["valid"].x), first)
    assert first.shape == (2, 512)
    assert first.dtype == torch.float32


def test_networks_begin_with_the_words(make: Make) -> None:
    dataset = loaded(make())
    assert torch.equal(dataset.initial_values["pairs"], dataset.pairs.numbers)
    expected = {"old": 1, "wet": 2, "tiny": 3, "bear": 4, "cat": 5, "dog": 6}
    for name, words in (("attributes.weight", dataset.pairs.attributes), ("objects.weight", dataset.pairs.objects)):
        rows = [[expected[word], expected[word] / 2, -0.1] for word in words]
        assert torch.allclose(dataset.initial_values[name], torch.tensor([*rows, [0, 0, 0]], dtype=torch.float32))


def test_a_step_adds_the_pairs_to_choose_from(encoded: CompositionalDataset) -> None:
    assert encoded.draw is not None
    train = encoded.splits["train"]
    x, y = encoded.draw(train.x.unsqueeze(0), train.y.unsqueeze(0), keys([0], "draw"), 0)
    read = encoded.encode(x)
    assert (read.shape, read.dtype) == ((1, 10, 512 + 1 + 4), torch.float32)
    assert torch.equal(read[0, :, 512].long(), train.y)
    assert torch.equal(read[0, :, :512], encoded.encode(train.x))
    assert set(read[..., 513:].long().flatten().tolist()) <= set(encoded.pairs.seen.tolist())
    assert y.tolist() == [[0] * 10]


def test_weights_and_words_are_part_of_a_run_s_key(make: Make, home: Path, tmp_path: Path) -> None:
    made = make()
    assert (made.origin, len(made.digest), len(made.vectors_digest)) == ("own", 64, 64)
    assert source(json.loads(made.model_dump_json())) == made
    other = tmp_path / "words.txt"
    other.write_text((home / "words.txt").read_text() + "fox 1 2 3\n")
    assert make(vectors=str(other)).vectors_digest != made.vectors_digest
    assert make(vectors=None).vectors_digest == GLOVE.sha256
    with pytest.raises(UserError, match="word vectors here are not those with the digest 00"):
        make(vectors_digest="00").load()
    with pytest.raises(UserError, match="weights here are not those with the digest 00"):
        make(digest="00", origin="own").prepare()
    with pytest.raises(ValueError, match=r"file of word vectors .* cannot be read"):
        make(vectors=str(tmp_path / "nothing.txt"))


def test_glove_may_lie_unpacked_in_the_data_folder(make: Make, home: Path, folder: Path) -> None:
    (folder / "mitstates" / "glove.6B").mkdir(parents=True)
    shutil.copy(home / "words.txt", folder / "mitstates" / "glove.6B" / "glove.6B.300d.txt")
    assert torch.equal(
        loaded(make(vectors=None)).initial_values["objects.weight"], loaded(make()).initial_values["objects.weight"]
    )


def test_the_data_folder_is_where_it_is_looked_for(make: Make, home: Path, folder: Path) -> None:
    (status,) = dataset_statuses(["mitstates"])
    assert (status.here, status.own) == (False, False)
    with pytest.raises(UserError, match=r"there is no folder .*mitstates/mit-states with the files"):
        make(path=None).load()
    shutil.copytree(home / "mit-states", folder / "mitstates" / "mit-states")
    assert len(loaded(make(path=None)).splits["train"]) == 10
    (folder / "mitstates" / "glove.6B").mkdir()
    assert status.here
    assert status.task_and_samples[1]["train"] == 30_338


def spoil_pairs(layout: Path) -> None:
    (layout / SPLIT / "val_pairs.txt").write_text("old bear\nwet old bear\n")


def spoil_metadata(layout: Path) -> None:
    (layout / METADATA).write_bytes((layout / METADATA).read_bytes()[:100])


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (spoil_pairs, r"line 2 of .*val_pairs\.txt has 3 words, not an attribute and an object"),
        (lambda layout: (layout / SPLIT / "test_pairs.txt").unlink(), r"test_pairs\.txt cannot be read \(No such file"),
        (lambda layout: (layout / SPLIT / "test_pairs.txt").write_text("far away\n"), "names no image of the split 'test'"),
        (spoil_metadata, r"natural\.t7 is cut off at byte 100|natural\.t7 says .* it may be cut off"),
        (lambda layout: (layout / METADATA).unlink(), r"natural\.t7 cannot be read"),
    ],
)
def test_bad_files_are_told(make: Make, copied: Path, spoil: Callable[[Path], None], fault: str) -> None:
    spoil(copied)
    with pytest.raises(UserError, match=fault):
        make(path=str(copied)).load()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("text", "holds no table of records"),
        ({1: {"image": "a/b.jpg", "attr": "old", "obj": "bear"}}, r"record 1\.0 of .* has no text 'set'"),
        ({1: 3.0}, r"record 1\.0 of .* has no text 'image'"),
    ],
)
def test_other_metadata_are_told(make: Make, copied: Path, t7: Callable[[Any], bytes], content: Any, fault: str) -> None:
    (copied / METADATA).write_bytes(t7(content))
    with pytest.raises(UserError, match=fault):
        make(path=str(copied)).load()


def test_missing_pictures_are_told(make: Make, copied: Path) -> None:
    (copied / "images" / "old bear" / "1.png").unlink()
    with pytest.raises(UserError, match=r"the image .*old bear/1\.png cannot be read \(No such file"):
        make(path=str(copied)).prepare()
    shutil.rmtree(copied / "images" / "old bear")
    with pytest.raises(UserError, match=r"images has no folder of the image 'old_bear/1\.png'"):
        make(path=str(copied)).prepare()
    shutil.rmtree(copied / "images")
    with pytest.raises(UserError, match=r"the images in .*images cannot be read"):
        make(path=str(copied)).prepare()


def test_a_name_cannot_lead_out_of_the_folder(make: Make, copied: Path, t7: Callable[[Any], bytes]) -> None:
    records = [{"image": "../x/1.png", "attr": pair[0], "obj": pair[1], "set": "train"} for pair in LISTED]
    records += [record | {"set": split} for record in records for split in ("val", "test")]
    (copied / METADATA).write_bytes(t7(dict(enumerate(records))))
    with pytest.raises(UserError, match=r"has no folder of the image '\.\./x/1\.png'"):
        make(path=str(copied)).prepare()
