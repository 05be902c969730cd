"""Your own table: which activation is better on it, found as a study made in memory."""

from boolit.lab.compare.config import DEFAULT_ACTIVATIONS, Question
from boolit.lab.compare.job import Compared, Comparing

__all__ = ["DEFAULT_ACTIVATIONS", "Compared", "Comparing", "Question"]
