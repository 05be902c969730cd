"""The published files themselves: fetched if they are not here."""

import pytest
import torch

from boolit.lab.datasets import load, source
from boolit.lab.datasets.covertype import Covertype
from boolit.lab.datasets.images.mnist import Mnist
from boolit.lab.datasets.status import dataset_statuses, file_state

pytestmark = pytest.mark.slow
NAMES = ("chorales", "cifar10", "covertype", "mnist")


@pytest.mark.parametrize("name", NAMES)
def test_splits_have_the_announced_sizes_and_files_are_whole(name: str) -> None:
    (status,) = dataset_statuses([name])
    data = load(source({"name": name}))
    assert {split: len(samples) for split, samples in data.splits.items()} == status.task_and_samples[1]
    assert {file_state(published).state for published in status.files} == {"whole"}


def test_the_classes_of_covertype_are_as_documented() -> None:
    splits = load(Covertype()).splits
    counts = sum(split.y.bincount(minlength=7) for split in splits.values())
    assert torch.as_tensor(counts).tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]


@pytest.mark.parametrize(("split", "chorales", "steps"), [("train", 229, 55_228), ("valid", 76, 18_408), ("test", 77, 18_900)])
def test_chorales_have_their_steps(split: str, chorales: int, steps: int) -> None:
    data = load(source({"name": "chorales", "grid": "sixteenth"}))
    assert len(data.splits[split]) == steps - 3 * chorales


def test_mnists_pixels_have_the_scale_they_are_normalised_by() -> None:
    x = load(Mnist(validation=0)).splits["train"].x
    assert tuple(x.shape) == (60_000, 28, 28)
    assert float(x.double().mean() / 255) == pytest.approx(0.1307, abs=5e-5)
    assert float(x.double().std() / 255) == pytest.approx(0.3081, abs=5e-5)


def test_cifar_10_is_the_one_that_everybody_measured() -> None:
    train, test = (load(source({"name": "cifar10"})).splits[name] for name in ("train", "test"))
    assert train.y[:5].tolist() == [6, 9, 9, 4, 1]
    assert train.y[:10_000].bincount().tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert test.y.bincount().tolist() == [1_000] * 10
    colours = [torch.std_mean(train.x[:, colour].double() / 255, correction=0) for colour in range(3)]
    assert [float(mean) for _, mean in colours] == pytest.approx([0.49139968, 0.48215841, 0.44653091], abs=5e-9)
    assert [float(deviation) for deviation, _ in colours] == pytest.approx([0.24703223, 0.24348513, 0.26158784], abs=5e-9)
