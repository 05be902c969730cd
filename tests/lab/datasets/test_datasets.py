"""The synthetic datasets are what the paper says they are."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import torch

from boolit.errors import UserError
from boolit.lab.common.random import keys
from boolit.lab.datasets import DATASETS, dataset_names, describe, load, register, source
from boolit.lab.datasets.base import Dataset, Description, Source, Split
from boolit.lab.datasets.boolean import even_parity, nested_xnor
from boolit.lab.datasets.images.augmentation import JITTER, jitter


@pytest.mark.parametrize("name", ["parity", "parity8", "xor"])
def test_splits_are_reproducible_and_test_data_is_fresh(name: str) -> None:
    one, other = source({"name": name}).load(), source({"name": name}).load()
    for split in one.splits:
        assert torch.equal(one.splits[split].x, other.splits[split].x)
        assert torch.equal(one.splits[split].y, other.splits[split].y)
    train, test = one.splits["train"].x, one.splits["test"].x
    assert not (train.unsqueeze(0) == test[:200].unsqueeze(1)).flatten(2).all(2).any()
    seeded = source({"name": name, "seed": 1}).load()
    assert not torch.equal(seeded.splits["train"].x, train)


def test_parity_is_that_of_the_number_of_positive_inputs() -> None:
    data = source({"name": "parity", "train": 300}).load().splits["train"]
    by_hand = [sum(value > 0 for value in row) % 2 == 0 for row in data.x.tolist()]
    assert data.y.squeeze(1).bool().tolist() == by_hand


def test_parity_is_balanced() -> None:
    assert abs(float(source({"name": "parity"}).load().splits["test"].y.mean()) - 0.5) < 0.03


def test_the_probe_counts_sign_patterns() -> None:
    (probe,) = source({"name": "parity"}).load().probes
    assert sorted(map(tuple, probe.x.tolist())) == sorted(product((-1.0, 1.0), repeat=4))
    right = even_parity(probe.x) - 0.5
    wrong_once = right.clone()
    wrong_once[3] *= -1
    metrics = probe.metrics(torch.stack([right, wrong_once, -right]))
    assert metrics["patterns"].tolist() == [16, 15, 0]


def test_parity8_nests_the_exact_xnor() -> None:
    def xnor(x: float, y: float) -> float:
        p, q = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(-y))
        both = p * q + (1 - p) * (1 - q)
        return float(np.log(both / (1 - both)))

    x = torch.rand(20, 8, dtype=torch.float64) * 10 - 5
    for row, value in zip(x.tolist(), nested_xnor(x).squeeze(1).tolist(), strict=True):
        first = xnor(xnor(row[2], row[5]), xnor(row[3], row[4]))
        second = xnor(xnor(row[6], row[7]), xnor(row[0], row[1]))
        assert value == pytest.approx(xnor(first, second), abs=1e-9)


def test_the_targets_of_parity8_spread_as_in_the_paper() -> None:
    splits = source({"name": "parity8", "train": 100_000}).load().splits
    assert 0.27 < float(splits["train"].y.std()) < 0.29


def test_xor_has_four_clusters_of_two_classes() -> None:
    data = source({"name": "xor", "train": 2000, "spread": 0.1}).load().splits["train"]
    assert torch.equal(data.y.squeeze(1) > 0.5, data.x.prod(1) < 0)
    assert all(int((data.x.sign() == torch.tensor(signs)).all(1).sum()) > 100 for signs in product((-1.0, 1.0), repeat=2))


def test_loading_twice_shares_the_tensors() -> None:
    assert load(source({"name": "xor"})) is load(source({"name": "xor"}))


def test_an_unknown_dataset_names_a_near_one() -> None:
    with pytest.raises(ValueError, match="unknown dataset 'pairty'; choose parity"):
        source({"name": "pairty"})


def test_a_dataset_of_ones_own_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS, "registered", {})
    monkeypatch.setattr(DATASETS, "built_in", {})

    @register
    class Ones(Source):
        name: str = "ones"
        samples: int = 3

        def load(self) -> Dataset:
            split = Split(torch.ones(self.samples, 2), torch.ones(self.samples, 1))
            return Dataset({"train": split, "test": split}, "regression", 1)

    assert len(source({"name": "ones", "samples": 5}).load().splits["train"]) == 5
    assert dataset_names() == ["ones"]


def test_jitter_is_small_noise_of_each_runs_own() -> None:
    x = torch.zeros(2, 500, 4)
    noisy = jitter(x, keys([1, 2], "augmentation"), 3)
    assert float(noisy.std()) == pytest.approx(JITTER, rel=0.1)
    assert torch.equal(noisy[1:], jitter(x[1:], keys([2], "augmentation"), 3))
    assert not torch.equal(noisy[0], noisy[1])


@pytest.mark.parametrize(
    "table",
    [
        {"name": "digits"},
        {"name": "digits", "validation": 0.1},
        {"name": "holdout", "of": {"name": "parity", "train": 41}},
        {"name": "holdout", "of": {"name": "composed"}, "share": None},
    ],
    ids=str,
)
def test_a_source_describes_what_it_loads(table: dict[str, object]) -> None:
    wanted = source(table)
    assert wanted.describe() == wanted.load().description


def test_data_that_is_not_as_described_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = source({"name": "xor", "seed": 123})
    monkeypatch.setattr(type(wanted), "describe", lambda _: Description((3,), 1, "binary", {"train": 1, "test": 1}))
    with pytest.raises(UserError, match=r"xor has inputs \(2,\), not \(3,\)"):
        load(wanted)


def test_a_source_that_says_nothing_beforehand_is_loaded() -> None:
    assert describe(source({"name": "xor", "seed": 124})).inputs == (2,)


def test_one_dataset_is_loaded_without_the_others() -> None:
    """Each more of them adds its own file only."""
    modules = {"parity": "boolean", "chorales": "chorales", "covertype": "covertype"}
    get = "".join(f"DATASETS.get({name!r}); print(*sys.modules); " for name in modules)
    script = f"import sys; from boolit.lab.datasets import DATASETS; {get}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    places = {place.partition(":")[0] for place in DATASETS.built_in.values()} - {"boolit.lab.datasets"}
    loaded = [places & set(line.split()) for line in done.stdout.splitlines()]
    expected = [f"boolit.lab.datasets.{module}" for module in modules.values()]
    assert loaded == [set(expected[:1]), set(expected[:2]), set(expected)]
