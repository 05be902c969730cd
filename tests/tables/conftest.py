"""A small table with every kind of column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    """Texts as a CSV file has them: numbers, categories, flags and dates with gaps, and a target that follows from them."""
    random, rows = np.random.default_rng(1), 160
    size, color, member = random.normal(size=rows), random.choice(["red", "blue", "green"], rows), random.integers(2, size=rows)
    return pd.DataFrame(
        {
            "size": np.where(np.arange(rows) % 9 == 0, "", np.char.mod("%.6f", size)),
            "color": np.where(np.arange(rows) % 13 == 0, "", color),
            "member": np.where(member == 1, "yes", "no"),
            "since": [f"{1 + row % 28:02d}/0{1 + row % 9}/2024" for row in range(rows)],
            "class": np.where(size + (color == "red") + member > 0.8, "big", "small"),
            "price": np.char.mod("%.3f", 1000 + 50 * (size + member)),
        }
    )


@pytest.fixture
def table(frame: pd.DataFrame, tmp_path: Path) -> Path:
    """Return the table as a CSV file."""
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"
