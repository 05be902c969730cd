"""MNIST's files, splits and scale."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.datasets import source
from boolit.lab.datasets.download.published import PublishedFile
from boolit.lab.datasets.images.mnist import Mnist, normalise, parse_idx

Publish = Callable[..., PublishedFile]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def arrays(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What the files hold: 30 training and 8 test images."""
    drawn = np.random.default_rng(0)
    arrays = [drawn.integers(0, high, shape) for n in (30, 8) for high, shape in ((256, (n, 28, 28)), (10, (n,)))]
    contents = zip(Mnist.files, arrays, strict=True)
    monkeypatch.setattr(Mnist, "files", tuple(publish("mnist", known.name, idx(array)) for known, array in contents))
    return arrays


def test_the_last_training_images_are_the_validation_split(arrays: list[np.ndarray]) -> None:
    data = source({"name": "mnist", "validation": 10}).load()
    for split, images, labels in (
        ("train", arrays[0][:20], arrays[1][:20]),
        ("valid", arrays[0][20:], arrays[1][20:]),
        ("test", *arrays[2:]),
    ):
        assert np.array_equal(data.splits[split].x.numpy(), images)
        assert np.array_equal(data.splits[split].y.numpy(), labels)
        assert (data.splits[split].x.dtype, data.splits[split].y.dtype) == (torch.uint8, torch.int64)
    assert (data.task, data.outputs, data.inputs) == ("classes", 10, (28, 28))


@pytest.mark.usefixtures("arrays")
def test_all_training_images_can_be_trained_on() -> None:
    data = source({"name": "mnist", "validation": 0}).load()
    assert set(data.splits) == {"train", "test"}
    assert len(data.splits["train"]) == 30


def test_the_default_is_the_papers() -> None:
    assert Mnist().validation == 10_000
    assert Mnist.samples == {"train": 50_000, "valid": 10_000, "test": 10_000}


@pytest.mark.usefixtures("arrays")
def test_encoded_pixels_are_floats_of_the_usual_scale() -> None:
    data = source({"name": "mnist", "validation": 10}).load()
    x = data.splits["train"].x[:6].view(2, 3, 28, 28)
    expected = (x.double() / 255 - 0.1307) / 0.3081
    assert data.encode(x).dtype == torch.float32
    assert torch.allclose(data.encode(x).double(), expected, atol=1e-6)
    floats = x.float()
    assert torch.equal(normalise(floats), data.encode(x))
    assert torch.equal(floats, x.float())


@given(st.lists(st.integers(0, 4), max_size=4))
def test_idx_holds_any_shape(shape: list[int]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 256
    assert np.array_equal(parse_idx(idx(array), "file").numpy(), array)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\x00\x00\x0d\x01\x00\x00\x00\x00", "begins with the bytes '00 00 0d 01'"),
        (b"", "begins with the bytes ''"),
        (b"\x00\x00\x08", "begins with the bytes"),
        (b"\x00\x00\x08\x02\x00\x00", "has 6 bytes"),
        (idx(np.zeros((2, 3)))[:-1], r"has 17 bytes, not what its header says for the shape \(2, 3\)"),
        (idx(np.zeros((2, 3))) + b"\0", "has 19 bytes"),
    ],
)
def test_a_file_of_another_format_is_told(content: bytes, fault: str) -> None:
    with pytest.raises(UserError, match=f"images {fault}.*fetch it again"):
        parse_idx(content, "images")


def test_a_magic_number_that_is_wrong_is_told_when_loading(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tuple(publish("mnist", known.name, b"\x01" + idx(np.zeros((2, 28, 28)))) for known in Mnist.files)
    monkeypatch.setattr(Mnist, "files", bad)
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz begins with"):
        source({"name": "mnist", "validation": 0}).load()


@pytest.mark.usefixtures("arrays")
def test_a_missing_file_without_a_network_says_where_to_put_it() -> None:
    Mnist.files[2].path.unlink()
    with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte.gz of mnist could not be downloaded.*put the published"):
        source({"name": "mnist", "validation": 0}).load()
