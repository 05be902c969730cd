"""Identifiers, constants and leaks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from boolit.tables.checks import leaks, unused_columns

random = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("x", np.arange(1000, 1200), "ID"),  # 7fbaaa9 recognized only numbers that count from 0 or 1
        ("x", random.permutation(np.arange(5000, 5200)), "ID"),
        ("x", -np.arange(200) * 1000, "ID"),
        ("customer_id", random.choice(10**9, 200, replace=False), "ID"),
        ("x", [f"name {i}" for i in range(200)], "like names"),
        ("x", ["same"] * 200, "constant"),
        ("x", np.full(200, 3.5), "constant"),
        ("x", [""] * 200, "empty"),
        ("population", random.choice(10**9, 200, replace=False), None),
        ("x", random.normal(size=200), None),
        ("x", np.arange(200) // 2, None),
        ("x", pd.date_range("2024-01-01", periods=200).astype(str), None),
        ("x", [f"kind {i % 30}" for i in range(200)], None),
        ("x", ["3"] * 199 + [""], None),
    ],
)
def test_unused_columns(name: str, values: object, reason: str | None) -> None:
    found = unused_columns(pd.DataFrame({name: values}), levels=20).get(name)
    assert (found is None) if reason is None else (found is not None and reason in found)
    assert not unused_columns(pd.DataFrame({name: values}), levels=20, keep=[name])


def test_leaks_are_found_and_good_columns_are_not() -> None:
    x, y = random.normal(size=(2, 800))
    target = np.where(x + 0.5 * y > 0, "yes", "no")
    frame = pd.DataFrame(
        {"x": x, "y": y, "result": np.where(target == "yes", "passed", "failed"), "code": (target == "yes") * 7.5}
    )
    assert set(leaks(frame, target, regression=False)) == {"result", "code"}
    frame = pd.DataFrame({"x": x, "y": y, "euros": 0.9 * (3 * x + y)})
    assert set(leaks(frame, 3 * x + y, regression=True)) == {"euros"}


def test_leaks_with_rare_classes_and_gaps() -> None:
    target = np.arange(600) % 100 == 0
    frame = pd.DataFrame({"noise": random.normal(size=600), "flag": np.where(target, "1", ""), "missing": [None] * 600})
    assert set(leaks(frame, target, regression=False)) == {"flag"}
    assert not leaks(frame[:5], target[:5], regression=False)
