"""A small table of every kind of column, and a comparison on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

ROWS = 160


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def table_text(target: str = "class") -> str:
    """CSV with missing values, categories, flags and dates; the target follows from them."""
    drawn = np.random.default_rng(1)
    lines = [f"size,colour,member,since,{target}"]
    for row in range(ROWS):
        size, colour, member = drawn.normal(), drawn.choice(["red", "blue", "green"]), bool(drawn.integers(2))
        value = "yes" if size + (colour == "red") + member > 0.8 else "no"
        shown = "" if row % 9 == 0 else f"{size:.6f}"
        own = value if target == "class" else f"{1000 + 50 * (size + member):.3f}"
        lines.append(f"{shown},{'' if row % 13 == 0 else colour},{str(member).lower()},2024-01-{1 + row % 28:02d},{own}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with classes.csv and quantity.csv, and the data folder in it."""
    path = tmp_path_factory.mktemp("comparing")
    (path / "classes.csv").write_text(table_text())
    (path / "quantity.csv").write_text(table_text("price"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOLIT_DATA", str(path / "data"))
        yield path
