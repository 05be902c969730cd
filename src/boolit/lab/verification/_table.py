"""The paper's two tables of transfer heads: every activation it tests, with map, width and parameters in thousands."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

# Classes of each dataset, under the tables' headings (tab:datasets).
CLASSES = {"Cal101": 101, "CIFAR10": 10, "CIFAR100": 100, "Flowers": 102, "StfCars": 196, "STL-10": 10, "SVHN": 10}
TABLES = ("tab:transfer-nparam-big", "tab:transfer-nparam-512")


@dataclass(frozen=True)
class HeadRow:
    """A row: ``activation`` is a spec, or ``linear`` for the head without a hidden layer; ``thousands`` is by dataset."""

    table: str
    activation: str
    map: str
    width: int | None
    thousands: dict[str, int]


@lru_cache(maxsize=1)
def head_rows() -> tuple[HeadRow, ...]:
    """All rows of both tables."""
    lines = resources.files(__package__).joinpath("transfer_heads.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        HeadRow(
            table=row["table"],
            activation=row["activation"],
            map=row["map"],
            width=int(row["width"]) if row["width"] else None,
            thousands={dataset: int(row[dataset]) for dataset in CLASSES},
        )
        for row in csv.DictReader(lines)
    )
