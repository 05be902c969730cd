"""What to compare on the user's own data, with every default in one place.

Nothing here imports torch, so the command line can show the defaults without it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from boolit.errors import UserError, user_input

DEFAULT_ACTIVATIONS = ("relu", "silu", "max", "or_ail", "xnor_nail", "or_and_xnor_nail_d")
DEFAULT_HEADS = ("identity", "relu", "prelu", "max", "or_ail", "xnor_nil", "xnor_nail", "or_and_xnor_nail_d")
DEFAULT_REFERENCE = "relu"
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
SPLITS, SPLITS_OF_MANY_ROWS, MIN_SPLITS = 10, 5, 5
MANY_ROWS = 20_000  # from this many on, splits differ little, and half as many are enough


@dataclass(frozen=True)
class CompareConfig:
    """A table and its target, the activations to compare, and how large and how often.

    Args:
        table: a .csv, .tsv, .parquet or .npz file.
        target: the column to predict.
        task: ``classify`` or ``regress``; seen from the target unless given.
        activations: their specs.
        budget: parameters of every network; about 10,000, or 50 per feature if that is more, unless given.
        layers: hidden layers.
        splits: how many random splits of the rows; 10, or 5 from 20,000 rows on, unless given.
        test: the share of rows to test on.
        validation: the share of the other rows to validate on.
        levels: the most texts of a column that are categories.
        drop: columns to leave out.
        epochs: the most; enough to see three million rows, at least 8 and at most 100, unless given.
        reference: the activation the others are tested against first; relu if it is one of them, else the first one.
        rates: learning rates to try.
        minutes: about how long it may take; splits, rates and epochs at their defaults are reduced to fit.

    Example:
        >>> from pathlib import Path
        >>> from boolit.lab import CompareConfig
        >>> config = CompareConfig(Path("My wine.csv"), target="class", activations=("silu", "or_ail"))
        >>> config.validate()
        >>> config.name, config.reference_activation, config.split_numbers(rows=178)
        ('My-wine', 'silu', range(1, 11))
    """

    table: Path
    target: str
    task: Literal["classify", "regress"] | None = None
    activations: tuple[str, ...] = DEFAULT_ACTIVATIONS
    budget: int | None = None
    layers: int = 2
    splits: int | None = None
    test: float = 0.2
    validation: float = 0.2
    levels: int = 20
    drop: tuple[str, ...] = ()
    epochs: int | None = None
    reference: str | None = None
    rates: tuple[float, ...] = RATES
    minutes: float | None = None

    @property
    def name(self) -> str:
        """The study's name, which is the table's in letters that are safe in a file name."""
        return _file_name(self.table.name.partition(".")[0], "table")

    def validate(self) -> None:
        """Raises `UserError` for an unknown or repeated activation, and for values that make no comparison."""
        check_activations(self.activations)
        if self.task not in (None, "classify", "regress"):
            raise UserError(f"--task {self.task} is no task; use classify or regress")
        if self.reference is not None and self.reference not in self.activations:
            known = ", ".join(self.activations)
            raise UserError(f"the reference {self.reference!r} is not among the activations {known}; choose one of them")
        if self.splits is not None and self.splits < MIN_SPLITS:
            raise UserError(f"--splits {self.splits} is too few to tell noise from a difference; at least {MIN_SPLITS}")
        for place, rate in enumerate(self.rates):
            if not 0 < rate < math.inf or rate in self.rates[:place]:
                raise UserError(f"the learning rate {rate:g} is not above 0 and finite, or is there twice; change --rates")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"--minutes {self.minutes:g} is no time to plan by; give a number above 0")
        if not self.rates:
            raise UserError("there are no learning rates to try; give some, such as --rates 0.003,0.01,0.03")

    @property
    def reference_activation(self) -> str:
        """The activation that the others are compared with."""
        return self.reference or (DEFAULT_REFERENCE if DEFAULT_REFERENCE in self.activations else self.activations[0])

    def split_numbers(self, rows: int) -> range:
        """The numbers of the splits for a table with this many rows."""
        return range(1, 1 + (self.splits or (SPLITS_OF_MANY_ROWS if rows >= MANY_ROWS else SPLITS)))


@dataclass(frozen=True)
class ImageCompareConfig:
    """A folder with one folder of images per class, the activations to compare, and how the encoder sees the images.

    Args:
        folder: with one folder per class.
        activations: their specs, in the head on the frozen encoder.
        seeds: how many heads of each.
        size: the side of a square image as the encoder sees it.
        views: how many crops of every training image.
        weights: a file of the encoder's weights; the published ones unless given.
        rate: the learning rate; chosen for each activation on the validation images unless given.
        batch: images a step; by their number unless given.
        epochs: of the heads.

    Example:
        >>> from pathlib import Path
        >>> from boolit.lab import ImageCompareConfig
        >>> config = ImageCompareConfig(Path("My pictures"), activations=("relu", "xnor_nail"), rate=0.003)
        >>> config.validate()
        >>> config.name, config.size, config.seeds
        ('My-pictures', 224, 5)
    """

    folder: Path
    activations: tuple[str, ...] = DEFAULT_HEADS
    seeds: int = 5
    size: int = 224
    views: int = 5
    weights: Path | None = None
    rate: float | None = None
    batch: int | None = None
    epochs: int = 25

    @property
    def name(self) -> str:
        """The study's name, which is the folder's in letters that are safe in a file name."""
        return _file_name(self.folder.resolve().name, "pictures")

    def validate(self) -> None:
        """Raises `UserError` for an unknown or repeated activation, and for an impossible learning rate."""
        check_activations(self.activations)
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise UserError(f"--rate {self.rate} is no learning rate; it must be above 0 and finite, such as 0.003")


def check_activations(specs: Sequence[str]) -> None:
    """Raises `UserError` if an activation does not exist or is there twice, or if there are none."""
    from boolit.nn import activation

    for place, spec in enumerate(specs):
        with user_input():
            activation(spec)
        if spec in specs[:place]:
            raise UserError(f"the activation {spec!r} is there twice; name each once")
    if not specs:
        raise UserError("there are no activations to compare; name some, such as relu,or_ail")


def _file_name(text: str, default: str) -> str:
    return re.sub(r"[^0-9A-Za-z_-]+", "-", text).strip("-") or default
