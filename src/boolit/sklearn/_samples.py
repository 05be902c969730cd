"""What is trained on: distinct samples with weights, and some of them set aside for validation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Samples(NamedTuple):
    """Inputs, targets and how much each sample counts.

    Shape: ``(n, features)``, ``(n, …)`` and ``(n,)``.
    """

    x: Array
    y: Array
    weight: Array

    def take(self, rows: Array) -> Samples:
        """Some of the samples."""
        return Samples(self.x[rows], self.y[rows], self.weight[rows])


def distinct(samples: Samples) -> Samples:
    """The distinct samples of positive weight, in an order of their own, each with the weight of all its copies.

    So a weight of 2 is a sample given twice, to the last bit, and no sample is both trained on and validated with.

    Example:
        >>> x, y = np.array([[3.0], [3.0], [5.0]]), np.array([0, 0, 1])
        >>> distinct(Samples(x, y, np.array([1.0, 2.0, 0.0])))
        Samples(x=array([[3.]]), y=array([0]), weight=array([3.]))
    """
    samples = samples.take(np.flatnonzero(samples.weight))
    if not len(samples.x):
        raise ValueError("sample_weight is 0 for every sample; give at least one a positive weight")
    first, copies = _groups(samples.x, samples.y)
    return samples.take(first)._replace(weight=np.bincount(copies, samples.weight, len(first)))


def _groups(x: Array, y: Array) -> tuple[Array, Array]:
    """The first row of each group of equal rows, and the group of every row; compared as bytes, which is quickest."""
    rows = [np.ascontiguousarray(part.reshape(len(x), -1)).view(np.uint8) for part in (x, y)]
    joined = np.hstack(rows)
    _, first, group = np.unique(joined.view(f"V{joined.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return first, group


def split(samples: Samples, fraction: float, drawn: np.random.RandomState) -> tuple[Samples, Samples]:
    """Training and validation samples, drawn at random along the sorted targets: both have about the same mix of them."""
    n = len(samples.x)
    if n < 2:
        raise ValueError(f"n_samples={n} cannot be split for early_stopping; give two distinct samples or more")
    held = min(max(round(fraction * n), 1), n - 1)
    order = drawn.permutation(n)
    order = order[np.argsort(samples.y.reshape(n, -1)[order, 0], kind="stable")]
    chosen = ((np.arange(held) + 0.5) * n / held).astype(int)
    return samples.take(np.delete(order, chosen)), samples.take(order[chosen])


def scaling(values: Array, weight: Array) -> tuple[Array, Array]:
    """Weighted mean and standard deviation of every column; 1 in place of the deviation of a constant column.

    Example:
        >>> scaling(np.array([[1.0, 7.0], [3.0, 7.0]]), np.ones(2))
        (array([2., 7.]), array([1., 1.]))
    """
    mean = np.average(values, 0, weight)
    deviation = np.sqrt(np.average(np.square(values - mean), 0, weight))
    # A constant column may have a deviation by rounding alone, and a nearly constant one none by underflow.
    return mean, np.where((np.ptp(values, 0) > 0) & (deviation > 0), deviation, 1.0)
