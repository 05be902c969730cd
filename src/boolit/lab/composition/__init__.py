"""Things that are pairs of an attribute and an object: which pairs there are, and what a network that scores them is worth."""

from boolit.lab.composition.evaluation import FIGURES, Curve, curves, figures
from boolit.lab.composition.pairs import Pairs, contenders

__all__ = ["FIGURES", "Curve", "Pairs", "contenders", "curves", "figures"]
