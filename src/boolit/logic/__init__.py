"""The mathematics of logical activations: tensors in, tensors out."""

from boolit.logic.kernels.operators import evaluate
from boolit.logic.moments import moments
from boolit.logic.program import Program
from boolit.logic.vocabulary import FORMS, OPERATIONS, PAIRINGS

__all__ = ["FORMS", "OPERATIONS", "PAIRINGS", "Program", "evaluate", "moments"]
