"""Which rows are trained on, validated on and tested on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from boolit.lab.randomness import generator

Rows = npt.NDArray[np.int64]


def split(strata: Rows, test: float, validation: float, seed: int) -> dict[str, Rows]:
    """Rows by split, every stratum with its share in each as nearly as whole rows allow.

    Rows are put in a random order within their stratum, and every (1/test)-th of the whole line is tested on; of the others
    every (1/validation)-th is validated on. A stratum too small for its share is thus left to the training rows most often.

    Shape: ``(rows,)`` to three of about ``(1 − test)·(1 − validation)``, ``(1 − test)·validation`` and ``test`` of the rows.

    Example:
        >>> parts = split(np.repeat([0, 1], [15, 10]), 0.2, 0.25, seed=0)
        >>> {name: (len(rows), int((rows >= 15).sum())) for name, rows in parts.items()}
        {'train': (15, 6), 'valid': (5, 2), 'test': (5, 2)}
    """
    return _cut(_line(strata, generator(seed, "split")), test, validation)


def resample(strata: Rows, test: float, validation: float, seed: int, number: int) -> dict[str, Rows]:
    """The split of a number: as `split`, and as large for every number, but the rows are drawn anew.

    The line is turned by a random number of places besides, so that a stratum of a few rows is not in the same part each time.

    Example:
        >>> parts = [resample(np.repeat([0, 1], [15, 10]), 0.2, 0.25, 0, number) for number in (1, 2)]
        >>> [len(part["test"]) for part in parts], bool((parts[0]["test"] == parts[1]["test"]).all())
        ([5, 5], False)
    """
    drawn = generator(seed, "resample", number)
    line = _line(strata, drawn)
    return _cut(np.roll(line, int(torch.randint(len(line), (), generator=drawn))), test, validation)


def _line(strata: Rows, drawn: torch.Generator) -> Rows:
    """The rows by stratum, in a random order within each."""
    return np.lexsort((torch.rand(len(strata), generator=drawn, dtype=torch.float64).numpy(), strata))


def _cut(line: Rows, test: float, validation: float) -> dict[str, Rows]:
    tested = _every(len(line), test)
    rest = line[~tested]
    validated = _every(len(rest), validation)
    parts = {"train": rest[~validated], "valid": rest[validated], "test": line[tested]}
    return {name: np.sort(rows) for name, rows in parts.items()}


def _every(rows: int, share: float) -> npt.NDArray[np.bool_]:
    """Marks a share of some places, evenly spread, beginning in the middle of the first stretch."""
    marks = np.floor(np.arange(rows + 1) * share + 0.5)
    marked: npt.NDArray[np.bool_] = np.diff(marks) > 0
    return marked
