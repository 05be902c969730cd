"""From runs to scores: what is chosen by validation rows, what the baseline scores, and verdicts where the truth is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boolit.lab.compare.config import CompareConfig
from boolit.lab.compare.job import CompareJob, Outcomes, baseline_score
from boolit.lab.compare.rates import choose_rates
from boolit.lab.compare.study import table_source
from boolit.lab.datasets import Dataset, load
from boolit.lab.results.resampled import ResampledSplits
from boolit.lab.results.verdicts import SplitVerdict
from boolit.lab.runs import Metric, Record, RunConfig


def record(spec: str, split: int, valid: float, test: float = 0.5, rate: float = 0.1, state: Any = "finished") -> Record:
    config = RunConfig(activation=spec, split=split, seed=split, training={"learning_rate": rate})
    metrics = {"valid_loss": valid, "test_accuracy": test, "learning_rate": rate}
    return Record(config.key, config, state, metrics)


def outcomes(records: Sequence[Record], baseline_scores: Sequence[float] = (0.5, 0.5)) -> Outcomes:
    places = {(r.config.activation, r.config.split): r for r in records}
    specs = list(dict.fromkeys(spec for spec, _ in places))
    return Outcomes(
        places, specs, (1, 2), Metric(name="accuracy"), ResampledSplits(2, 20, 80), "majority class", baseline_scores
    )


def test_the_rate_of_a_split_is_chosen_by_its_own_validation_rows() -> None:
    records = [
        record("a", 1, 0.3, rate=0.1),
        record("a", 1, 0.2, rate=0.01),
        record("a", 2, 0.1, rate=0.1),
        record("a", 2, 0.2, rate=0.01),
        record("b", 1, 0.1, rate=0.1, state="diverged"),
        record("b", 1, 0.9, rate=0.01),
        record("b", 2, math.nan, rate=0.1, state="diverged"),
        record("b", 2, math.nan, rate=0.01, state="diverged"),
    ]
    assert choose_rates(records) == {("a", 1): 0.01, ("a", 2): 0.1, ("b", 1): 0.01, ("b", 2): 0.01}


@pytest.mark.parametrize("tests", [(0.9, 0.1, 0.5), (0.1, 0.9, math.nan), (math.nan, math.inf, 0.0)])
def test_test_metrics_choose_nothing(tests: tuple[float, float, float]) -> None:
    """Whatever the test rows say, not being a number included."""
    records = [
        record(spec, split, loss, test)
        for split in (1, 2)
        for spec, loss, test in zip("abc", (0.2, 0.1, 0.3), tests, strict=True)
    ]
    assert [outcomes(records).choose(split) for split in (1, 2)] == ["b", "b"]


def test_the_expected_score_is_that_of_the_choice_on_every_split() -> None:
    records = [record("a", 1, 0.1, 0.6), record("b", 1, 0.2, 0.9), record("a", 2, 0.2, 0.9), record("b", 2, 0.1, 0.7)]
    assert outcomes(records).expected().mean == pytest.approx((0.6 + 0.7) / 2)
    lost = [record(spec, split, math.nan, math.nan, state="diverged") for spec in "ab" for split in (1, 2)]
    assert outcomes([*records[:1], *lost[2:3], *lost[1:2], *lost[3:]], (0.4, 0.3)).expected().mean == pytest.approx(0.45)
    assert outcomes(lost).choose(1) is None


def test_a_run_that_diverged_counts_as_the_baseline() -> None:
    records = [record("a", 1, 0.1, 0.9), record("a", 2, math.nan, math.nan, state="diverged")]
    found = outcomes(records, (0.5, 0.3))
    assert found.compare().scores["a"] == (0.9, 0.3)
    assert found.diverged() == {"a": 1}


def table(path: Path, x: Any, y: Sequence[object]) -> Path:
    names = [f"x{i}" for i in range(x.shape[1])]
    lines = [",".join([*map(repr, row), str(label)]) for row, label in zip(x.tolist(), y, strict=True)]
    path.write_text("\n".join([",".join([*names, "y"]), *lines]) + "\n")
    return path


def dataset(path: Path) -> Dataset:
    return load(table_source(CompareConfig(path, "y")))


def test_the_baseline_is_measured_on_the_test_rows(folder: Path) -> None:
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(100, 2))
    classes = dataset(table(folder / "three.csv", x, drawn.choice(["a", "b", "c"], 100, p=[0.2, 0.5, 0.3]).tolist()))
    amounts = dataset(table(folder / "amounts.csv", x, drawn.normal(50, 9, 100).tolist()))
    for data in (classes, amounts):
        assert data.pool is not None
        assert data.resample is not None
    y, rows = classes.pool.y, classes.resample(1).rows  # type: ignore[union-attr,misc]
    most = int(torch.mode(y[rows["train"]]).values)
    assert baseline_score(classes, 1) == pytest.approx(float((y[rows["test"]] == most).double().mean()))
    values, rows = amounts.unit * amounts.pool.y.double(), amounts.resample(1).rows  # type: ignore[union-attr,misc]
    errors = values[rows["test"]] - values[rows["train"]].mean()
    assert baseline_score(amounts, 1) == pytest.approx(float(errors.square().mean().sqrt()))
    assert 6 < baseline_score(amounts, 1) < 12


def compared(path: Path, out: Path, **options: Any) -> SplitVerdict:
    found = CompareJob.prepare(CompareConfig(path, "y", **options), progress=False).run(out, progress=False).verdict
    assert found is not None
    return found


def test_no_winner_is_found_in_noise(folder: Path, tmp_path: Path) -> None:
    """A target that is independent of every column, as in benchmarks/compare_null.py."""
    drawn = np.random.default_rng(1)
    noise = table(folder / "noise.csv", drawn.normal(size=(100, 4)), drawn.integers(2, size=100).tolist())
    found = compared(noise, tmp_path / "out", activations=("relu", "max", "xnor_nail"), epochs=12, budget=300)
    assert found.learnt == []
    assert found.wins == {}
    assert str(found).startswith("Nothing here beats guessing the majority class")
    assert "significantly better" not in str(found)
    # Far from any last bit: nothing comes near the 0.05 that would be significant.
    assert min(found.comparison.pair(a, b).p_holm for a, b in [("relu", "max"), ("relu", "xnor_nail")]) > 0.2


def test_a_true_difference_is_found(folder: Path, tmp_path: Path) -> None:
    """Whether two signs agree, with as many parameters as one XNOR gate or two rectifiers have, which cannot tell it."""
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(500, 2))
    same = ((x[:, 0] > 0) == (x[:, 1] > 0)).tolist()
    options: dict[str, Any] = {"activations": ("relu", "xnor_nail"), "budget": 13, "layers": 1, "epochs": 40}
    found = compared(table(folder / "signs.csv", x, same), tmp_path / "out", **options)
    assert found.wins == {"xnor_nail": ["relu"]}
    assert "XNORₙₐᵢₗ is significantly better than ReLU (reference, by " in str(found)
    assert found.comparison.pair("xnor_nail", "relu").p_holm < 0.01
