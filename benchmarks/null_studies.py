"""Measure how often a study of equal activations declares any pair different, and how often it finds a true difference.

    python benchmarks/null_studies.py

Every study draws n normal values for each of k activations with the same mean and tests all pairs with `welch_p` and `sidak`,
the functions behind the verdict. At most 6 % of the null studies may declare a pair different. The power is the share of
studies of n = 10 that find one given pair different when its true difference is one pooled standard deviation.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import numpy as np

from boolit.lab.results.statistics import ALPHA, sidak, welch_p

STUDIES = 2000
BAR = 0.06
ACTIVATIONS, RUNS = (2, 8, 20), (3, 10, 40)
SPREADS = {"equal": 1.0, "1:10": 10.0}

Array = np.ndarray[Any, np.dtype[Any]]


def p_values(generator: np.random.Generator, means: Array, sds: Array, n: int) -> Array:
    """Return the corrected p-values of all pairs in `STUDIES` studies, with shape ``(studies, k, k)``."""
    values = generator.normal(means[:, None], sds[:, None], (STUDIES, len(means), n))
    raw = welch_p(values.mean(-1), values.std(-1, ddof=1), np.full(len(means), n))
    return sidak(raw, len(means) * (len(means) - 1) // 2)


def main() -> int:
    """Print the table; return 1 if a share of false differences is above the bar."""
    generator, worst = np.random.default_rng(0), 0.0
    print("  k   n  sds    any false difference  power (difference of 1 sd, n = 10)")
    for k, n, (name, ratio) in product(ACTIVATIONS, RUNS, SPREADS.items()):
        sds = np.geomspace(1, ratio, k)
        first, second = np.triu_indices(k, 1)
        false = float((p_values(generator, np.zeros(k), sds, n)[:, first, second] <= ALPHA).any(-1).mean())
        worst = max(worst, false)
        power = ""
        if n == 10:
            means = np.zeros(k)
            means[0] = np.sqrt((sds[0] ** 2 + sds[1] ** 2) / 2)
            power = f"{(p_values(generator, means, sds, n)[:, 0, 1] <= ALPHA).mean():.1%}"
        print(f"{k:3} {n:3}  {name:5}  {false:20.1%}  {power:>10}", flush=True)
    print(f"highest share of studies with a false difference: {worst:.1%} (bar: {BAR:.0%})")
    return int(worst > BAR)


if __name__ == "__main__":
    sys.exit(main())
