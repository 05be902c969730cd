"""Comparisons of activations on a user's table or image folder. Their options are here, where nothing imports torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from boolit.errors import UserError, user_input

DEFAULT_ACTIVATIONS = ("relu", "silu", "max", "or_ail", "xnor_nail", "or_and_xnor_nail_d")
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
SPLITS, SPLITS_OF_MANY_ROWS, MIN_SPLITS, MAX_SPLITS = 10, 5, 5, 50
MANY_ROWS = 20_000  # from this many rows on, splits differ little, and half as many are enough
SUFFIXES = re.compile(r"(\.(csv|tsv|parquet|gz|bz2|xz))+$", re.IGNORECASE)


@dataclass(frozen=True)
class CompareConfig:
    """What to compare, on which data, and how large and how often."""

    path: Path  # a CSV, TSV or Parquet file, or a folder with one folder of images per class
    target: str | None = None  # the column to predict; images have none
    task: Literal["classify", "regress"] | None = None  # defaults to what the target looks like
    metric: str | None = None  # a scikit-learn scorer; defaults to accuracy, a metric that suits rare classes, or the RMSE
    class_weight: Literal["balanced"] | None = None  # gives every class the same weight in training
    activations: tuple[str, ...] = DEFAULT_ACTIVATIONS
    budget: int | None = None  # parameters of every network; defaults to 10,000, or 50 per feature if that is more
    layers: int = 2  # hidden layers
    splits: int | None = None  # defaults to 10, or 5 from 20,000 rows on
    test: float = 0.2  # share of the rows to test on
    validation: float = 0.2  # share of the other rows to validate on
    drop: tuple[str, ...] = ()  # columns to leave out
    keep: tuple[str, ...] = ()  # columns to use even if they look like identifiers
    groups: str | None = None  # column whose equal values stay in the same part of a split
    time: str | None = None  # column by which rows are ordered; later rows are tested on
    epochs: int | None = None  # at most; defaults to as many as see 1.5 million rows, at least 8 and at most 100
    rates: tuple[float, ...] = RATES  # learning rates to try
    minutes: float | None = None  # approximate limit; the default of epochs is reduced to fit
    weights: Path | None = None  # weights of the image encoder; defaults to torchvision's ResNet-18

    @property
    def name(self) -> str:
        """Name of the study: the file name without its suffix, in letters that are safe in a file name."""
        name = SUFFIXES.sub("", self.path.resolve().name)
        return re.sub(r"[^0-9A-Za-z_.-]+", "-", name).strip("-.") or "table"

    def validate(self) -> None:
        """Raise `UserError` for values that make no comparison."""
        from boolit.nn import activation

        for option, values in (("--activations", self.activations), ("--rates", self.rates)):
            if len(set(values)) < max(1, len(values)):
                raise UserError(f"{option} {','.join(map(str, values))} must name at least one, and none twice")
        with user_input():
            for spec in self.activations:
                activation(spec)
        if not all(0 < rate < math.inf for rate in self.rates):
            raise UserError(f"--rates {','.join(map(str, self.rates))} must be above 0 and finite")
        if self.groups is not None and self.time is not None:
            raise UserError(f"--groups {self.groups} and --time {self.time} exclude each other")
        if not (self.path.is_file() or self.path.is_dir()):
            raise UserError(f"{self.path} {'is neither a file nor a folder' if self.path.exists() else 'does not exist'}")
        if self.path.is_dir() == (self.target is not None):
            raise UserError("a folder of images has no --target" if self.target else "a table needs --target COLUMN")
        if self.weights is not None and self.path.is_file():
            raise UserError(f"--weights {self.weights} is for a folder of images, not for a table; leave it out")
