"""Things that are pairs of an attribute and an object: which pairs there are, and what a network that scores them is worth."""

from boolit.lab.datasets.composition.pairs import FIGURES, Curve, Pairs, contenders, curves, figures

__all__ = ["FIGURES", "Curve", "Pairs", "contenders", "curves", "figures"]
