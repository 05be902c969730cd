"""The mathematics of logical activations: tensors in, tensors out.

Example:
    >>> import torch
    >>> both = Program((("or", "ail"), ("xnor", "ail")), "d")
    >>> evaluate(torch.tensor([1.0, 2.0, -1.0, 3.0]), both, dim=-1)
    tensor([ 3.,  3.,  1., -1.])
"""

from boolit.logic.dispatch import evaluate
from boolit.logic.moments import moments
from boolit.logic.operations import FORMS, OPERATIONS, PAIRINGS, Program

__all__ = ["FORMS", "OPERATIONS", "PAIRINGS", "Program", "evaluate", "moments"]
