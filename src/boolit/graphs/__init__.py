"""Logic on graphs: gates over index lists, and belief propagation on parity-check codes.

Example:
    >>> import torch
    >>> from boolit.graphs import BeliefPropagation, hamming_code
    >>> decoder = BeliefPropagation(hamming_code(3), iterations=10)
    >>> received = torch.tensor([2.0, 2.0, -1.0, 2.0, 2.0, 2.0, 2.0])  # the third bit of 0000000 is flipped
    >>> decoder(received).bits.any().item()
    False
"""

from boolit.graphs.codes import (
    bivariate_bicycle_code,
    channel_logit,
    gallager_code,
    hamming_code,
    load_code,
    logical_operators,
    repetition_code,
    save_code,
    surface_code,
)
from boolit.graphs.decoders import bp_osd, matrices_of, sinter_decoder
from boolit.graphs.gather import IndexLists, gather_gate
from boolit.graphs.propagation import BeliefPropagation, Decoded

__all__ = [
    "BeliefPropagation",
    "Decoded",
    "IndexLists",
    "bivariate_bicycle_code",
    "bp_osd",
    "channel_logit",
    "gallager_code",
    "gather_gate",
    "hamming_code",
    "load_code",
    "logical_operators",
    "matrices_of",
    "repetition_code",
    "save_code",
    "sinter_decoder",
    "surface_code",
]
