"""Split the rows of a table into training, validation and test rows: at random, by group or by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from boolit.errors import UserError

Rows = npt.NDArray[np.int64]
SPLITS = ("train", "valid", "test")
MIN_GROUPS = 5
MAX_SPLITS = 50  # splits by group are cut to the size of the smallest of this many
MAX_DRAWS = 20  # of the groups of a split, if a part would lack a class


@dataclass(frozen=True)
class RowSplitter:
    """Numbered splits of rows, all with the same number of training, validation and test rows.

    Args:
        strata: class number of every row; every split has about the same share of each. Zeros for regression.
        groups: group number of every row. Rows of a group are never in different parts of a split; rows are left out where
            splits would otherwise differ in size.
        times: time of every row. Later rows are tested on, and every split is the same.
        test: share of the rows to test on.
        validation: share of the other rows to validate on.
        seed: seed of the splits.

    Example:
        >>> splitter = RowSplitter(np.repeat([0, 1], [15, 10]), test=0.2, validation=0.25)
        >>> {name: (len(rows), int((rows >= 15).sum())) for name, rows in splitter.rows(1).items()}
        {'train': (15, 6), 'valid': (5, 2), 'test': (5, 2)}
    """

    strata: Rows
    groups: Rows | None = None
    times: npt.NDArray[np.float64] | None = None
    test: float = 0.2
    validation: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.groups is not None and len(np.unique(self.groups)) < MIN_GROUPS:
            raise UserError(f"the table has {len(np.unique(self.groups))} groups; a split by group needs at least {MIN_GROUPS}")
        for name, rows in self.rows(1).items():
            if len(rows) < (2 if name == "train" else 1):
                raise UserError(f"{len(self.strata)} rows are too few to split into training, validation and test rows")

    def rows(self, number: int) -> dict[str, Rows]:
        """Return the sorted training, validation and test rows of a split."""
        if self.times is not None:
            return self._by_time()
        if self.groups is None:
            parts = self._stratified(number)
        else:
            random, parts = np.random.default_rng([self.seed, number, 1]), self._by_group(number)
            for name, rows in parts.items():
                order = random.permutation(rows)
                first = np.unique(self.strata[order], return_index=True)[1]  # a row of each class stays
                parts[name] = np.concatenate([order[first], np.delete(order, first)])[: self._sizes[name]]
        return {name: np.sort(parts[name]) for name in SPLITS}

    def _stratified(self, number: int) -> dict[str, Rows]:
        """Take every (1/test)-th of the rows sorted by stratum, and of the others every (1/validation)-th.

        The sequence begins at a random place, so that the rows of a small stratum are not always in the same part.
        """
        random = np.random.default_rng([self.seed, number])
        order = np.lexsort((random.random(len(self.strata)), self.strata))
        order = np.roll(order, random.integers(len(order)))
        is_test = _evenly_spaced(len(order), self.test)
        rest = order[~is_test]
        is_valid = _evenly_spaced(len(rest), self.validation)
        return {"train": rest[~is_valid], "valid": rest[is_valid], "test": order[is_test]}

    def _by_group(self, number: int) -> dict[str, Rows]:
        random = np.random.default_rng([self.seed, number])
        _, codes, counts = np.unique(np.asarray(self.groups), return_inverse=True, return_counts=True)
        classes = np.zeros((len(counts), self.strata.max() + 1), np.bool_)
        classes[codes, self.strata] = True  # whether a group has rows of a class
        for _ in range(MAX_DRAWS if classes.sum(0).min() >= len(SPLITS) else 1):  # until every part has rows of every class
            order = random.permutation(len(counts))
            ends = np.cumsum(counts[order])
            first = min(max(1, _nearest(ends, self.test * len(codes))), len(order) - 2)
            rest = ends[first - 1] + self.validation * (len(codes) - ends[first - 1])
            second = min(max(first + 1, _nearest(ends, rest)), len(order) - 1)
            part = np.searchsorted([first, second], np.argsort(order), side="right")
            if all(classes[part == place].any(0).all() for place in range(len(SPLITS))):
                break
        return {name: np.flatnonzero(part[codes] == place) for place, name in enumerate(("test", "valid", "train"))}

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        splits = [self._by_group(number) for number in range(1, MAX_SPLITS + 1)]
        return {name: min(len(rows[name]) for rows in splits) for name in SPLITS}

    def _by_time(self) -> dict[str, Rows]:
        """Cut the rows in order of time. Rows of the same time stay together."""
        assert self.times is not None
        order = np.argsort(self.times, kind="stable")
        times, n = self.times[order], len(order)
        cuts = [round((1 - self.test) * (1 - self.validation) * n), round((1 - self.test) * n)]
        first, second = (int(np.searchsorted(times, times[min(cut, n - 1)])) for cut in cuts)
        return {"train": np.sort(order[:first]), "valid": np.sort(order[first:second]), "test": np.sort(order[second:])}


def balance(rows: Rows, classes: Rows, size: int) -> Rows:
    """Repeat or leave out rows so that all classes are equally frequent among ``size`` rows, as with balanced weights."""
    codes = classes[rows]
    present = np.unique(codes)
    slots = np.diff(np.linspace(0, size, len(present) + 1).round().astype(np.int64))
    return np.sort(np.concatenate([np.resize(rows[codes == code], n) for code, n in zip(present, slots, strict=True)]))


def _evenly_spaced(n: int, share: float) -> npt.NDArray[np.bool_]:
    return np.asarray(np.diff(np.floor(np.arange(n + 1) * share + 0.5)) > 0)


def _nearest(ends: Rows, size: float) -> int:
    """Return how many groups together come closest to a number of rows."""
    return int(np.abs(ends - size).argmin()) + 1
