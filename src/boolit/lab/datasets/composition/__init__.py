"""Compositional zero-shot learning: pairs of an attribute and an object, and the evaluation of networks that score them."""

from boolit.lab.datasets.composition.pairs import METRICS, Curve, Pairs, compute_metrics, curves, sample_candidates

__all__ = ["METRICS", "Curve", "Pairs", "compute_metrics", "curves", "sample_candidates"]
