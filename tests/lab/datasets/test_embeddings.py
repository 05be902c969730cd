"""Features of images: encoded once, continued where they ended, and refreshed batch norms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from boolit.errors import UserError
from boolit.lab.common.random import generator, keys
from boolit.lab.datasets import embeddings, load, register, source
from boolit.lab.datasets.base import Dataset, Source, Split
from boolit.lab.datasets.embeddings import Embeddings, encode_batches, read_encoder
from boolit.lab.datasets.images import normalizer
from boolit.lab.models.resnet18 import Resnet18


@pytest.fixture
def weights(folder: Path) -> Path:
    torch.manual_seed(1)
    path = folder / "weights" / "resnet18-backbone.pth"
    path.parent.mkdir(parents=True)
    torch.save(Resnet18().state_dict(), path)
    return path


@pytest.fixture
def small(weights: Path) -> dict[str, Any]:
    @register
    class Noise(Source):
        name: str = "noise"
        validation: float = 0.0

        def load(self) -> Dataset:
            x = torch.randint(256, (30, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
            y = torch.arange(30) % 3
            return Dataset({"train": Split(x[:20], y[:20]), "test": Split(x[20:], y[20:])}, "classes", 3)

    assert weights.is_file()
    return {"name": "embeddings", "of": {"name": "noise"}, "size": 32, "views": 2}


def test_features_are_those_of_the_network(small: dict[str, Any], weights: Path) -> None:
    wanted = source(small | {"refresh": False})
    data = load(wanted)
    assert wanted.describe() == data.description
    network = read_encoder(weights).eval()
    images = load(source(small["of"])).splits["test"].x
    with torch.no_grad():
        expected = network(normalizer("imagenet")(images))
    torch.testing.assert_close(data.encode(data.splits["test"].x), expected, rtol=2e-3, atol=2e-3)


def test_more_views_are_appended_and_one_is_drawn_in_a_step(small: dict[str, Any]) -> None:
    first = source(small)
    assert isinstance(first, Embeddings)
    first.load()
    before = (first.folder / "features").read_bytes()
    more = source(small | {"views": 3})
    assert isinstance(more, Embeddings)
    assert more.folder == first.folder
    more.load()
    after = (more.folder / "features").read_bytes()
    assert after[: len(before)] == before
    assert len(after) == (10 + 3 * 20) * 1024
    data = load(more)
    assert data.draw is not None
    x, y = data.draw(data.splits["train"].x.expand(2, -1), data.splits["train"].y.expand(2, -1), keys([1, 2], "draw"), 0)
    assert torch.equal((x - 10) % 20, torch.arange(20).expand(2, -1))
    assert torch.equal(y, data.splits["train"].y.expand(2, -1))
    assert data.encode(x).shape == (2, 20, 512)


def test_a_cut_file_is_continued(small: dict[str, Any]) -> None:
    wanted = source(small)
    assert isinstance(wanted, Embeddings)
    wanted.load()
    file = wanted.folder / "features"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2 + 100])
    wanted.load()
    rows = [np.frombuffer(content, np.float16).astype(np.float32) for content in (file.read_bytes(), whole)]
    np.testing.assert_allclose(*rows, rtol=2e-3, atol=2e-3)


def test_the_name_of_the_folder_stays(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Hours of encoding are stored under this name: 7fbaaa9 had the same."""
    assert not folder.exists()
    digest = "5d8e38e9df1b325101a50e6856f21a8f39ba785a692850c130bfe7e354d6db40"
    monkeypatch.setattr(embeddings, "weights_identity", lambda _: ("reconstructed", digest))
    wanted = source({"name": "embeddings", "of": {"name": "cifar10"}})
    assert isinstance(wanted, Embeddings)
    assert wanted.folder.name == "3ed2a90d1552046c"


def test_other_data_and_weights_are_refused(small: dict[str, Any], weights: Path) -> None:
    with pytest.raises(UserError, match=r"parity has samples of the shape \(4,\): an encoder takes color images"):
        source(small | {"of": {"name": "parity"}}).describe()
    wanted = source(small)
    torch.save({name: value + 1 for name, value in Resnet18().state_dict().items()}, weights)
    with pytest.raises(UserError, match="the weights here are not those with the digest"):
        wanted.load()


def test_statistics_are_the_mean_over_batches(
    small: dict[str, Any], weights: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a view is the image itself."""
    monkeypatch.setattr(embeddings, "BATCH", 10)
    monkeypatch.setattr(embeddings, "augmented_view", lambda images, *_: images)
    load(source(small))
    (file,) = folder.rglob("statistics.safetensors")
    kept, convolution = load_file(file), read_encoder(weights).conv1
    images = load(source(small["of"])).splits["train"].x
    order = torch.randperm(20, generator=generator(0, "refresh"))
    with torch.no_grad():
        outputs = [convolution(normalizer("imagenet")(images[rows])) for rows in order.split(10)]
    torch.testing.assert_close(kept["bn1.running_mean"], torch.stack([x.mean((0, 2, 3)) for x in outputs]).mean(0))
    torch.testing.assert_close(kept["bn1.running_var"], torch.stack([x.var((0, 2, 3)) for x in outputs]).mean(0))


class Explosive(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :512] * 1e9


def test_features_beyond_float16_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embeddings, "fold_batch_norms", lambda _: Explosive())
    with pytest.raises(UserError, match="not finite in float16"):
        encode_batches(tmp_path, [(1, lambda: torch.zeros(1, 3, 32, 32, dtype=torch.uint8))], Resnet18)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"conv1.weight": torch.zeros(3)}, "KeyError: 'bn1.weight'"),
        (
            dict(Resnet18().state_dict(), **{"conv1.weight": torch.zeros(3)}),
            "RuntimeError: Error.* in loading state_dict",
        ),
        ([1], "has no weights of a ResNet-18 "),
        (Explosive(), "has no weights of a ResNet-18"),
        (b"no file of torch", "has no weights of a ResNet-18"),
        (None, "has no weights of a ResNet-18"),
    ],
    ids=["part", "shape", "list", "module", "bytes", "missing"],
)
def test_other_weights_are_refused(tmp_path: Path, content: Any, fault: str) -> None:
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UserError, match=fault):
        read_encoder(path)
