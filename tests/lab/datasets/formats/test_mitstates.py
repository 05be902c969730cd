"""MIT-States, with metadata as ``torch.save`` writes it, and GloVe's word vectors."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from boolit.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.datasets.czsl import mitstates
from boolit.lab.datasets.czsl.mitstates import word_vectors
from boolit.lab.models.resnet18 import Resnet18

Publish = Callable[..., None]
PAIRS = {
    "train": [("old", "bear"), ("wet", "dog"), ("wet", "bear"), ("old", "sea")],
    "val": [("old", "dog"), ("wet", "dog")],
    "test": [("wet", "sea"), ("old", "bear")],
}
# The records of metadata_compositional-split-natural.t7: facebookresearch/taskmodularnets and later readers torch.load a list
# of dicts; images without an attribute, or outside the split, have "NA".
RECORDS = [
    ("old_bear/1.jpg", "old", "bear", "train"),
    ("wet_dog/2.jpg", "wet", "dog", "train"),
    ("wet_sea/3.jpg", "wet", "sea", "train"),  # a pair of another list than that of its set is kept
    ("adj_dog/4.jpg", "NA", "dog", "train"),
    ("old_dog/5.jpg", "old", "dog", "val"),
    ("old_dog/6.jpg", "old", "dog", "NA"),
    ("blue_dog/7.jpg", "blue", "dog", "test"),  # its pair is in no list
    ("wet_sea/8.jpg", "wet", "sea", "test"),
    ("old_bear/9.jpg", "old", "bear", "testing"),  # any other set than train and val is test
]


def write_split(folder: Path, records: Any = None) -> None:
    """Write mit-states/ of compositional_split_natural.tar.gz, which github.com/facebookresearch/taskmodularnets reads."""
    (folder / "compositional-split-natural").mkdir(parents=True, exist_ok=True)
    for name, pairs in PAIRS.items():
        lines = "\n".join(" ".join(pair) for pair in pairs)
        (folder / "compositional-split-natural" / f"{name}_pairs.txt").write_text(lines)
    if records is None:
        records = [dict(zip(("image", "attr", "obj", "set"), record, strict=True)) for record in RECORDS]
        records[0] |= {"_image": "old bear/1.jpg"}  # further keys are ignored
    torch.save(records, folder / mitstates.METADATA, _use_new_zipfile_serialization=False)  # the format of 2019


@pytest.fixture
def files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    layout = folder / "mitstates" / "mit-states"
    write_split(layout)
    for image, attribute, thing, _ in RECORDS:
        path = layout / "images" / f"{attribute} {thing}" / Path(image).name  # the folders of release_dataset.zip have spaces
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (len(image), 9, 9)).save(path)
    with zipfile.ZipFile(folder / "mitstates" / "glove.6B.zip", "w") as archive:
        words = ["the", "old", "wet", "bear", "dog", "sea"]
        lines = "\n".join(f"{word} {' '.join(str(0.25 * place + n) for n in range(300))}" for place, word in enumerate(words))
        archive.writestr("glove.6B.50d.txt", "the 1 2")
        archive.writestr("glove.6B.300d.txt", lines)
    (folder / "weights").mkdir()
    torch.manual_seed(0)
    torch.save(Resnet18().state_dict(), folder / "weights" / "resnet18-backbone.pth")
    monkeypatch.setattr(mitstates, "note_unverified", lambda _: None)
    return layout


def test_the_index_follows_the_public_readers(files: Path) -> None:
    pairs, images, targets = mitstates.read_index(files)
    assert images == {
        "train": ["old_bear/1.jpg", "wet_dog/2.jpg", "wet_sea/3.jpg"],
        "valid": ["old_dog/5.jpg"],
        "test": ["wet_sea/8.jpg", "old_bear/9.jpg"],
    }
    names = pairs.names
    assert [names[number] for number in targets["train"].tolist()] == [("old", "bear"), ("wet", "dog"), ("wet", "sea")]


def test_it_is_loaded_from_the_published_layout(files: Path) -> None:
    wanted = source({"name": "mitstates", "negatives": 3})
    data = wanted.load()
    assert data.description.samples == {"train": 3, "valid": 1, "test": 2}
    assert data.initial_values["attributes.weight"].shape == (3, 300)
    assert data.initial_values["objects.weight"][1, 0] == 1.0  # dog, the fifth word
    features = data.encode(data.splits["test"].x)
    assert features.shape == (2, 512)
    assert features.isfinite().all()
    assert (files.parents[1] / "embeddings").is_dir()


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ({"image": "a"}, "cannot be read"),
        ([{"image": "a", "attr": "old", "obj": "bear"}], "cannot be read"),
        ([], "has no image of a listed pair for the split 'train'"),
    ],
)
def test_other_metadata_is_refused(tmp_path: Path, records: Any, fault: str) -> None:
    write_split(tmp_path, records)
    with pytest.raises(UserError, match=fault):
        mitstates.read_index(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\4\0\0\0\1\0\0\0", torch.Generator])
def test_metadata_that_torch_cannot_load_safely_is_refused(tmp_path: Path, content: Any) -> None:
    write_split(tmp_path)
    if isinstance(content, bytes):
        (tmp_path / mitstates.METADATA).write_bytes(content)
    else:
        torch.save([content], tmp_path / mitstates.METADATA)
    with pytest.raises(UserError, match=r"the split in .* cannot be read"):
        mitstates.read_index(tmp_path)


@pytest.mark.usefixtures("folder")
def test_without_the_files_it_says_where_they_go() -> None:
    wanted = source({"name": "mitstates"})
    described = wanted.describe()
    assert described is not None
    assert (described.outputs, described.samples["train"]) == (1_962, 30_338)
    with pytest.raises(UserError, match=r"there is no folder .*mitstates/mit-states .*docs/paper-models.md"):
        wanted.load()


def test_vectors_are_those_of_the_names_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / mitstates.GLOVE_FILE).write_text("3 2\nmoss 1 2\nstone 3 4\nold 5 6\n")
    assert word_vectors(tmp_path, ["Old", "moss"]).tolist() == [[5, 6], [1, 2]]
    with pytest.raises(UserError, match=r"word vectors of all names \(b'sky'\)"):
        word_vectors(tmp_path, ["old", "sky"])


@pytest.mark.parametrize("text", ["old a b\n", "old\n", "old nan 1\n", "old 1 2\nbear 1\n", "sky 1 2\n"])
def test_damaged_word_vectors_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / mitstates.GLOVE_FILE).write_text(text)
    with pytest.raises(UserError, match="vector"):
        word_vectors(tmp_path, ["old", "bear"])


def test_a_damaged_zip_of_words_is_refused(tmp_path: Path) -> None:
    for content in (b"", io.BytesIO(b"PK").getvalue()):
        (tmp_path / "glove.zip").write_bytes(content)
        with pytest.raises(UserError, match=r"glove\.zip has no file with the word vectors"):
            word_vectors(tmp_path / "glove.zip", ["old"])
