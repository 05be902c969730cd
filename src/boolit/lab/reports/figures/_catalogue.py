"""Every figure that needs no results: its name, what draws it, its label in the paper, its caption."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from matplotlib.figure import Figure

from boolit.lab.reports.figures._density import normalised
from boolit.lab.reports.figures._differences import differences, gradients
from boolit.lab.reports.figures._gates import gate, relu_approximation
from boolit.lab.reports.figures._pathways import pathways
from boolit.lab.reports.figures._saturation import saturation
from boolit.lab.reports.figures._weights import parity_by_hand
from boolit.lab.reports.figures._xor import xor_by_hand


class Entry(NamedTuple):
    """A figure of the catalogue; ``label`` is the paper's, or None where the paper has no such figure."""

    draw: Callable[[], Figure]
    label: str | None
    caption: str


FIGURES: dict[str, Entry] = {
    "gate-and": Entry(
        partial(gate, "and"),
        "fig:AND",
        "AND of two independent logits: exact (IL), approximate (AIL), and min(x, y), which is too high where both are "
        "negative. The paper's caption and third panel say max(x, y); AND is approximated by the minimum, drawn here.",
    ),
    "gate-or": Entry(
        partial(gate, "or"),
        "fig:OR",
        "OR of two independent logits: exact (IL), approximate (AIL), and max(x, y), which is too low where both are positive.",
    ),
    "gate-xnor": Entry(
        partial(gate, "xnor"),
        "fig:XNOR",
        "XNOR of two independent logits: exact (IL), approximate (AIL), and the signed geometric mean, which is further from "
        "the exact gate and whose slope diverges along both axes.",
    ),
    "difference-and": Entry(
        partial(differences, "and"),
        "fig:ap:AND",
        "AND exact, approximate, their difference and their relative difference (which diverges where the exact gate is 0). "
        "The paper says the difference never exceeds 1; it is ln 3 = 1.0986 at the origin and above 1 in the small triangle.",
    ),
    "difference-or": Entry(
        partial(differences, "or"),
        "fig:ap:OR",
        "OR exact, approximate, their difference and their relative difference (which diverges where the exact gate is 0). "
        "The paper says the difference never exceeds 1; it is ln 3 = 1.0986 at the origin and above 1 in the small triangle.",
    ),
    "difference-xnor": Entry(
        partial(differences, "xnor"),
        "fig:ap:XNOR",
        "XNOR exact, approximate, their difference and their relative difference. The paper's bound of 1 holds here and is "
        "not tight: the difference grows towards ln 2 = 0.6931 along both diagonals.",
    ),
    "gradient-and": Entry(
        partial(gradients, "and"),
        "fig:ap:grad:AND",
        "Slopes of AND by x and by y: exact above, approximate below, from autograd. Where one slope of AIL is 0 (white), "
        "the other is not.",
    ),
    "gradient-or": Entry(
        partial(gradients, "or"),
        "fig:ap:grad:OR",
        "Slopes of OR by x and by y: exact above, approximate below, from autograd. Where one slope of AIL is 0 (white), the "
        "other is not. (The paper's caption joins IL and AIL by “or” where “and” is meant.)",
    ),
    "gradient-xnor": Entry(
        partial(gradients, "xnor"),
        "fig:ap:grad:XNOR",
        "Slopes of XNOR by x and by y: exact above, approximate below, from autograd. Exactly one slope of AIL is 0 (white) "
        "off the diagonals. (The paper's caption joins IL and AIL by “xnor” where “and” is meant.)",
    ),
    "relu-approximation": Entry(
        relu_approximation,
        "fig:ap:relu",
        "Two ReLU units, the sum a second linear layer can make of them, and exact OR. Each unit is 0 in half of the plane, "
        "and the sum is 0 (hatched) in the quadrant where OR must be negative.",
    ),
    "xor-decision": Entry(
        xor_by_hand,
        "fig:toy-xor",
        "XOR with one hidden layer of 2 units. ReLU joins two of the regions by a stripe that does not hold beyond the "
        "samples (dashed box); XNOR has all four quadrants. Blue circles: negative samples; orange squares: positive ones; "
        "background: probability. The weights are set by hand here; the study `xor` draws the same for trained networks.",
    ),
    "pathways": Entry(
        pathways,
        "fig:pathways",
        "Channels through one layer. Lines show which channels feed which gate, found by probing each module's gradient. "
        "Both weight matrices make C channels. A duplication of m gates on pairs leaves mC/2 channels (section 3.5 of the "
        "paper says mC), so three gates are 2→3.",
    ),
    "parity-weights": Entry(
        parity_by_hand,
        "fig:parity",
        "The sparse network that computes the parity of four logits: pairs of units feed XNOR gates. Line width: size of the "
        "weight; orange positive, blue negative; biases are 0. The weights are set by hand here; the study `parity` draws "
        "the same for trained networks.",
    ),
    "normalised": Entry(
        normalised,
        "tab:normalization-constants",
        "Density of each gate's output for independent N(0, 1) operands: exact and approximate (above), and their normalised "
        "forms (below), which have mean 0 and standard deviation 1. Exact XNOR has a logarithmic peak at 0, cut off here.",
    ),
    "accuracy-of-package": Entry(
        saturation,
        None,
        "The exact gates along y = x, in float32: computed by this library, and by the definition with probabilities clamped "
        "at 1e-7, as the published package does. The latter (a formula of our own, not the package's code) saturates at ±16.1 "
        "and has lost digits long before. An error below 1e-9 is drawn at 1e-9.",
    ),
}
