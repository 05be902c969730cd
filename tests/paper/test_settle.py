"""docs/settle.md: its numbers are those of the evidence, and its rules do what was registered."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
DATASETS = [f"d{i}" for i in range(15)]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    specification = importlib.util.spec_from_file_location("settle_page", ROOT / "benchmarks" / "settle_page.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules["settle_page"] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def frame(page) -> pd.DataFrame:
    return page.read()


@pytest.fixture(scope="module")
def sizes(page, frame) -> pd.DataFrame:
    measured = pd.concat([pd.read_csv(path) for path in sorted((page.EVIDENCE / "sizes").glob("*.csv"))])
    return measured[measured["dataset"].isin(set(frame["dataset"]))]


def test_the_page_has_the_numbers_of_the_evidence(page, frame, sizes) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.fill(text, frame, page.read(first=True), sizes) == text


def test_every_cell_has_ten_runs(frame) -> None:
    counts = frame.groupby(["dataset", "budget", "activation"])["seed"].nunique()
    assert (counts == 10).all()
    assert len(counts) == frame["dataset"].nunique() * 3 * 14


def test_sizes_meet_their_targets(sizes) -> None:
    by_budget = dict(list(sizes.groupby("budget")))
    for budget, column, tolerance in (("params", "parameters", 0.03), ("outputs", "outputs", 0.0)):
        grouped = by_budget[budget].groupby("dataset")[column]
        target = (grouped.transform("max") + grouped.transform("min")) / 2
        assert ((by_budget[budget][column] / target - 1).abs() <= tolerance).all()
    assert ((by_budget["step-time"]["step_time"] / 1.5 - 1).abs() <= 0.1).all()


def simulated(page, effects: dict[str, float], seed: int = 0) -> pd.DataFrame:
    """Return runs in which arms differ from the others by given percentage points, a little different on every dataset."""
    draw = np.random.default_rng(seed)
    rows = [
        (name, budget, arm, run, value, value)
        for name in DATASETS
        for budget in page.BUDGETS
        for arm in page.ARMS
        for base in [80 + effects.get(arm, effects.get(f"{arm} {budget}", 0.0)) + draw.normal(0, 0.1)]
        for run in range(10)
        for value in [base + draw.normal(0, 0.3)]
    ]
    return pd.DataFrame(rows, columns=["dataset", "budget", "activation", "seed", "valid", "test"])


@pytest.mark.parametrize(
    ("effects", "held"),
    [
        ({"or_ail": 2.0}, {"logic matters"}),
        ({"or_ail": 2.0, "pair_random_or": 2.0}, {"pairing matters"}),
        ({"or_ail": 2.0, "max": 2.0}, set()),
        ({"or_ail params": 2.0, "or_ail step-time": 2.0}, {"width matters"}),
        ({"or_ail": 0.25, "pair_random_d": 0.25}, set()),  # found, but too small to matter
        ({}, set()),
    ],
)
def test_outcomes_follow_the_registered_rules(page, effects: dict[str, float], held: set[str]) -> None:
    answers = page.answers(page.registered(simulated(page, effects)))
    assert {name for name, value in answers.items() if value} == (held or {"none"})


def test_validation_rows_choose_the_arms_that_are_compared(page) -> None:
    runs = simulated(page, {"or_ail": 1.0})
    better = runs.assign(test=runs["test"] + 5 * (runs["activation"] == "xnor_ail"))
    assert {c.a for (question, _), c in page.registered(better).items() if question == "gain"} == {"or_ail"}


def test_the_bayesian_test_finds_differences_and_equivalence(page) -> None:
    assert page.bayes(np.full(15, 2.0))[2] > 0.99
    assert page.bayes(np.full(15, -2.0))[0] > 0.99
    assert page.bayes(np.full(15, 0.1))[1] > 0.99


def test_a_difference_is_paired_and_pooled_over_datasets(page) -> None:
    runs = simulated(page, {"max": 1.0})
    result = page.compare(runs, "params", "max", "relu")
    table = runs[runs["budget"] == "params"].pivot_table(index="dataset", columns="activation", values="test")
    assert result.difference == pytest.approx((table["max"] - table["relu"]).mean())
    assert 0.05 < result.seeds < 0.1  # 0.3 · √2 / √150 · 1.98
