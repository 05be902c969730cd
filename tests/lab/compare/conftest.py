"""Small tables whose target follows from their columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

ROWS = 160


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with table.csv (all kinds of columns, an ID, a leak, groups), and rare.csv."""
    path, random = tmp_path_factory.mktemp("compare"), np.random.default_rng(1)
    size, color, member = random.normal(size=ROWS), random.choice(["red", "blue", "green"], ROWS), random.integers(2, size=ROWS)
    big = size + (color == "red") + member > 0.8
    frame = pd.DataFrame(
        {
            "number": np.arange(1000, 1000 + ROWS),
            "size": np.where(np.arange(ROWS) % 9 == 0, np.nan, size),
            "color": np.where(np.arange(ROWS) % 13 == 0, None, color),
            "member": member == 1,
            "since": [f"{1 + row % 28:02d}/0{1 + row % 9}/2024" for row in range(ROWS)],
            "site": random.integers(20, size=ROWS),
            "leak": np.where(big, 7, 3),
            "class": np.where(big, "big", "small"),
            "price": 1000 + 50 * (size + member),
        }
    )
    frame.to_csv(path / "table.csv", index=False)
    x = random.normal(size=(600, 3))
    rare = pd.DataFrame(x, columns=list("abc")).assign(ill=(x[:, 0] + 0.7 * random.normal(size=600) > 2.2).astype(int))
    rare.to_csv(path / "rare.csv", index=False)
    return path
