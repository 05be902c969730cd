"""Your own table: which activation is better on it, found as a study made in memory."""

from boolit.lab.comparing.procedure import Compared, Comparing
from boolit.lab.comparing.question import DEFAULT_ACTIVATIONS, Question

__all__ = ["DEFAULT_ACTIVATIONS", "Compared", "Comparing", "Question"]
