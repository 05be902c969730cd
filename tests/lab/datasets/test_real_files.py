"""The published files themselves, where BOOLIT_DATA has them."""

from __future__ import annotations

import os

import pytest

from boolit.lab.datasets import load, source, source_type
from boolit.lab.datasets.download import PublishedDataset
from boolit.lab.datasets.embeddings import load_encoder, weights_identity

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not os.environ.get("BOOLIT_DATA"), reason="BOOLIT_DATA is not set")]
NAMES = ["caltech101", "cars", "chorales", "cifar10", "cifar100", "covertype", "flowers", "mitstates", "mnist", "stl10", "svhn"]


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_is_what_its_description_says(name: str) -> None:
    kind = source_type(name)
    assert issubclass(kind, PublishedDataset)
    if not all(file.here for file in kind.files):
        pytest.skip(f"BOOLIT_DATA has no {name}")
    wanted = source({"name": name})
    data = load(wanted)
    assert wanted.describe() == data.description
    assert data.encode(data.splits["test"].x[:8]).isfinite().all()
    if data.task == "classes":
        assert data.splits["train"].y.unique().tolist() == list(range(data.outputs)) or name == "mitstates"


def test_cifar10_has_the_published_moments() -> None:
    if not all(file.here for file in source_type("cifar10").files):  # type: ignore[attr-defined]
        pytest.skip("BOOLIT_DATA has no cifar10")
    x = load(source({"name": "cifar10"})).splits["train"].x.double() / 255
    assert x.mean((0, 2, 3)).tolist() == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=1e-8)
    assert x.std((0, 2, 3), correction=0).tolist() == pytest.approx([0.24703223, 0.24348513, 0.26158784], abs=1e-8)


def test_the_weights_are_a_resnet18() -> None:
    origin, digest = weights_identity(None)
    if origin == "published":
        pytest.skip("BOOLIT_DATA may have no weights")
    assert load_encoder(None, digest).conv1.weight.shape == (64, 3, 7, 7)
