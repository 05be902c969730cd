"""tab:tmn-og and tab:tmnx: widths and parameters of the task-driven modular networks on MIT-States, every row of both."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import torch

import boolit
from boolit.lab.models.tmn import Tmn
from boolit.lab.paper import table
from boolit.lab.paper.verification.check import Check, Value, agreed
from boolit.nn.width import count_parameters, round_width

FEATURES, PAIRS = 512, 1962
TMN, TMNX, TMNX_EQUAL = Tmn(variant="tmn"), Tmn(variant="tmnx"), Tmn(variant="tmnx", sizes="equal")
NOMINAL = {"tmn": 16, "tmnx": 64}
KINDS = (
    # table; a spec that stands for its kind; its width, its parameters to the last one, and as the table prints them
    ("TMN, 1→1", TMN, "relu", 16, 437_929, "438k"),
    ("TMN, 2→2", TMN, "or_and_ail_d", 16, 437_929, "438k"),
    ("TMN, 2→1", TMN, "or_ail", 32, 650_281, "650k"),
    ("TMNx, 1→1", TMNX, "relu", 64, 1_148_713, "1.15M"),
    ("TMNx, 2→2", TMNX, "or_and_ail_d", 64, 1_148_713, "1.15M"),
    ("TMNx, 2→1", TMNX, "or_ail", 70, 1_163_720, "1.16M"),
    ("TMNx, partition of 2", TMNX, "or_xnor_ail_p", 72, 1_193_821, "1.19M"),
    ("TMNx, partition of 3", TMNX, "or_and_xnor_ail_p", 72, 1_193_821, "1.19M"),
    ("TMNx, 2→3", TMNX, "or_and_xnor_ail_d", 60, 1_154_395, "1.15M"),
    ("TMNx, 2→3, hidden version of the table", TMNX_EQUAL, "or_and_xnor_ail_d", 64, 1_224_009, "1.22M"),
)
# What the tables print, by outputs per input of an activation; in tab:tmnx, partitions have a width of their own.
OF_TMN = {Fraction(1): "438k", Fraction(1, 2): "650k"}
OF_TMNX = {Fraction(1): "1.15M", Fraction(1, 2): "1.16M", Fraction(3, 2): "1.15M"}
OF_PARTITIONS = "1.19M"
GATES, UNITS = 1201, 64  # of the gater
SWAPPED_GATER = 611_849  # parameters of a TMN with OR_AIL, if the ReLU of the gater were changed as well
GATER_NOTE = "the paper says the gater's activation is changed too, but its count has the gater with 64 units of ReLU"


def checks() -> Iterator[Check]:
    """Width and count of each kind, then every row of both tables, and what the text says otherwise."""
    for kind, family, spec, width, exact, printed in KINDS:
        yield Check(f"{kind}: width", width, widths_of(family, spec)[0])
        yield Check(f"{kind}: parameters", printed, parameters(family, spec), expected=exact)
    for label, family, printed_of in (("tab:tmn-og", TMN, OF_TMN), ("tab:tmnx", TMNX, OF_TMNX)):
        for spec in rows(label):
            activation = boolit.activation(spec)
            printed = OF_PARTITIONS if activation.divisor > 2 else printed_of[activation.feature_factor]
            yield Check(f"{label}, {spec}", printed, written(_formula(family, spec)))
    swapped = _formula(TMN, "or_ail") - UNITS // 2 * GATES
    yield Check("TMN, OR_AIL in the gater as well", "650k", swapped, expected=SWAPPED_GATER, slip=True, note=GATER_NOTE)


def rows(label: str) -> list[str]:
    """The activations of a table, in its order.

    Example:
        >>> rows("tab:tmn-og")
        ['relu', 'max', 'max_min_d', 'xnor_ail', 'or_ail', 'or_and_ail_d', 'or_xnor_ail_d']
    """
    known = dict.fromkeys(cell.activation for cell in table(label))
    return [spec for spec in known if " " not in spec]  # the first row of tab:tmn-og is from another paper


def widths_of(family: Tmn, spec: str) -> list[int]:
    """The pre-activation width.

    Example:
        >>> widths_of(TMNX, "or_xnor_ail_p")
        [72]
    """
    activation = boolit.activation(spec)
    adapted = family.widths_for_activation([NOMINAL[family.variant]], [FEATURES], PAIRS, activation)
    return [round_width(width, activation.divisor) for width in adapted]


def parameters(family: Tmn, spec: str) -> Value:
    """By formula and by building the network; they must agree."""
    return agreed(formula=_formula(family, spec), built=_built(family, spec))


def written(count: int) -> str:
    """As the tables print it.

    Example:
        >>> written(437_929), written(1_148_713)
        ('438k', '1.15M')
    """
    return f"{count / 1e6:.2f}M" if count >= 10**6 else f"{count / 1e3:.0f}k"


def _formula(family: Tmn, spec: str) -> int:
    return family.parameters([FEATURES], PAIRS, widths_of(family, spec), boolit.activation(spec))


def _built(family: Tmn, spec: str) -> int:
    """The count of a network that was built, and run once, which its shapes must survive."""
    with torch.device("meta"):  # neither memory nor random numbers are spent on initial weights
        network = family.network([FEATURES], PAIRS, widths_of(family, spec), spec)
    network.to_empty(device="cpu").eval().pairs.zero_()
    with torch.inference_mode():
        scores = network(torch.zeros(1, FEATURES + 3))
    return count_parameters(network) if scores.shape == (1, 3) else 0
