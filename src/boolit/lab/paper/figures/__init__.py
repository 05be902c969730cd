"""The paper's figures that need no training: names, captions and labels, and drawing them to files.

A figure's module is imported when the figure is drawn, so the list needs no matplotlib. `networks` also draws those of a study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from boolit.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PaperFigure(NamedTuple):
    """A figure: ``function`` is the ``module:name`` that draws it, and ``label`` the paper's, or None."""

    function: str
    label: str | None
    caption: str
    gate: str | None = None

    def draw(self) -> Figure:
        """Draw the figure."""
        module, _, name = self.function.partition(":")
        function = getattr(import_module(f"{__name__}.{module}"), name)
        figure: Figure = function() if self.gate is None else function(self.gate)
        return figure


FIGURES: dict[str, PaperFigure] = {
    "overview": PaperFigure(
        "gates:overview",
        None,
        "OR, AND and XNOR each read two neurons, x and y, and answer a question about both: orange where the answer is true, "
        "blue where it is false, white at 0. ReLU reads one neuron, and says nothing where it is negative.",
    ),
    "gate-and": PaperFigure(
        "gates:gate",
        "fig:AND",
        "AND of two independent logits: exact (IL), approximate (AIL), and min(x, y), which is too high where both are "
        "negative. The paper's caption and third panel say max(x, y); AND is approximated by the minimum, drawn here.",
        "and",
    ),
    "gate-or": PaperFigure(
        "gates:gate",
        "fig:OR",
        "OR of two independent logits: exact (IL), approximate (AIL), and max(x, y), which is too low where both are positive.",
        "or",
    ),
    "gate-xnor": PaperFigure(
        "gates:gate",
        "fig:XNOR",
        "XNOR of two independent logits: exact (IL), approximate (AIL), and the signed geometric mean, which is further from "
        "the exact gate and whose slope diverges along both axes.",
        "xnor",
    ),
    **{
        f"difference-{op}": PaperFigure(
            "approximation:differences",
            f"fig:ap:{op.upper()}",
            f"{op.upper()} exact, approximate, their difference and their relative difference (which diverges where the exact "
            "gate is 0). The paper says the difference never exceeds 1; it is ln 3 = 1.0986 at the origin and above 1 in the "
            "small triangle.",
            op,
        )
        for op in ("and", "or")
    },
    "difference-xnor": PaperFigure(
        "approximation:differences",
        "fig:ap:XNOR",
        "XNOR exact, approximate, their difference and their relative difference. The paper's bound of 1 holds here and is "
        "not tight: the difference grows towards ln 2 = 0.6931 along both diagonals.",
        "xnor",
    ),
    # NOTE[paper]: the captions for OR and XNOR join IL and AIL by "or" and "xnor", where "and" is meant.
    **{
        f"gradient-{op}": PaperFigure(
            "approximation:gradients",
            f"fig:ap:grad:{op.upper()}",
            f"Slopes of {op.upper()} by x and by y: exact above, approximate below, from autograd. Where one slope of AIL is 0 "
            "(white), the other is not.",
            op,
        )
        for op in ("and", "or", "xnor")
    },
    "relu-approximation": PaperFigure(
        "gates:relu_approximation",
        "fig:ap:relu",
        "Two ReLU units, the sum a second linear layer can make of them, and exact OR. Each unit is 0 in half of the plane, "
        "and the sum is 0 (hatched) in the quadrant where OR must be negative.",
    ),
    "xor-decision": PaperFigure(
        "networks:xor_by_hand",
        "fig:toy-xor",
        "XOR with one hidden layer of 2 units. ReLU joins two of the regions by a stripe that does not hold beyond the "
        "samples (dashed box); XNOR has all four quadrants. White circles: negative samples; black squares: positive ones; "
        "background: probability. The weights are set by hand here; the study `xor` draws the same for trained networks.",
    ),
    "pathways": PaperFigure(
        "pathways:pathways",
        "fig:pathways",
        "Channels through one layer. Lines show which channels feed which gate, found by probing each module's gradient. "
        "Both weight matrices make C channels. A duplication of m gates on pairs leaves mC/2 channels (section 3.5 of the "
        "paper says mC), so three gates are 2→3.",
    ),
    "parity-weights": PaperFigure(
        "networks:parity_by_hand",
        "fig:parity",
        "The sparse network that computes the parity of four logits: pairs of units feed XNOR gates. Line width: size of the "
        "weight; orange positive, blue negative; biases are 0. The weights are set by hand here; the study `parity` draws "
        "the same for trained networks.",
    ),
}


def draw(
    names: Iterable[str],
    out: Path,
    format: str = "png",  # noqa: A002
    progress: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Draw figures of `FIGURES`, all if none is named, as ``out/NAME.FORMAT`` (png, svg or pdf) and return the files.

    ``progress`` is called with each written file.
    """
    from boolit.lab.paper.figures.look import FORMATS, save

    chosen = list(dict.fromkeys(names)) or list(FIGURES)
    if format not in FORMATS:
        raise UserError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    for name in chosen:
        if name not in FIGURES:
            near = [known for known in FIGURES if name and name in known] or get_close_matches(name, FIGURES, cutoff=0.5)
            raise UserError(f"unknown figure {name!r}; choose from {', '.join(near or FIGURES)}")
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{name}.{format}" for name in chosen]
    for name, path in zip(chosen, paths, strict=True):
        save(FIGURES[name].draw(), path, FIGURES[name].caption)
        if progress is not None:
            progress(path)
    return paths
