"""Compositional zero-shot learning: pairs of an attribute and an object, and the evaluation of networks that score them."""

from boolit.lab.datasets.czsl.pairs import (
    METRICS,
    CompositionalDataset,
    Curve,
    Pairs,
    compute_metrics,
    curves,
    sample_candidates,
)

__all__ = ["METRICS", "CompositionalDataset", "Curve", "Pairs", "compute_metrics", "curves", "sample_candidates"]
