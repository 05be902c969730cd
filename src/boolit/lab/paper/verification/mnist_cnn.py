"""tab:cnn-mnist: widths and parameters of the six-layer CNNs, whose columns are budgets of 2¹⁴, 2¹⁶, 2¹⁸ and 2²².

Six of convolution 3×3 → BN → act, pooled after every second; Linear → act → Linear → act → Linear(10); biases everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

import boolit
from boolit.lab.models.cnn import Cnn, Network, Structure
from boolit.lab.paper.verification.check import Check, Value, agreed
from boolit.lab.paper.verification.mnist_mlp import ROWS, rounded
from boolit.nn.width import count_parameters

PICTURE, CLASSES = (28, 28), 10


class Column(NamedTuple):
    """A column of the table, and the structure of its networks."""

    heading: str
    budget: int
    structure: Structure


COLUMNS = (
    Column("15k", 2**14, "small"),
    Column("63k", 2**16, "small"),
    Column("260k", 2**18, "small"),
    Column("260k", 2**18, "large"),
    Column("4M", 2**22, "large"),
)
KINDS = (
    # a spec that stands for its kind, and the widths and parameters of each column: n1 n2 n3=n4 n5=n6; l1 l2
    (
        "1→1",
        "relu",
        ("13 13 13 19; 26 19", "26 26 26 40; 53 40", "53 53 53 80; 106 80", "8 16 32 65; 262 131", "32 65 131 262; 1049 524"),
        (15_607, 64_501, 258_992, 261_752, 4_209_476),
    ),
    (
        "2→1",
        "or_ail",
        (
            "18 18 18 28; 36 28",
            "36 36 36 56; 74 56",
            "76 76 76 114; 152 114",
            "10 22 46 92; 370 184",
            "46 92 184 370; 1482 740",
        ),
        (15_970, 62_912, 265_212, 261_916, 4_195_936),
    ),
    (
        "2→2",
        "or_and_ail_d",
        ("12 12 12 18; 26 18", "26 26 26 40; 52 40", "52 52 52 80; 106 80", "8 16 32 64; 262 130", "32 64 130 262; 1048 524"),
        (14_022, 64_100, 255_416, 257_666, 4_199_834),
    ),
    (
        "2→3",
        "or_and_xnor_ail_d",
        ("10 10 10 16; 20 16", "20 20 20 32; 42 32", "42 42 42 64; 86 64", "6 12 26 52; 212 106", "26 52 106 212; 852 426"),
        (15_058, 60_000, 247_972, 254_092, 4_147_372),
    ),
)
PARTITIONS = (("partition of 2", "or_xnor_ail_p"), ("partition of 3", "or_and_xnor_ail_p"))


def checks() -> Iterator[Check]:
    """Each kind in each column, the partitions, the headings as means over the rows, and where the structure changes."""
    for kind, spec, widths, counts in KINDS:
        for column, wanted, exact in zip(COLUMNS, widths, counts, strict=True):
            name = f"{kind}, {column.structure} at {column.budget:,}"
            yield Check(f"{name}: widths", f"~{column.heading}", _written(widths_of(spec, column)), expected=wanted)
            yield Check(f"{name}: parameters", f"~{column.heading}", parameters(spec, column), expected=exact)
    for kind, spec in PARTITIONS:
        yield _partition(kind, spec)
    for column in COLUMNS:
        yield _heading(column)
    yield _change_of_structure()


def widths_of(spec: str, column: Column) -> list[int]:
    """The widths of a network of a column.

    Example:
        >>> widths_of("relu", COLUMNS[0])
        [13, 13, 13, 13, 19, 19, 26, 19]
    """
    family = Cnn(structure=column.structure)
    return family.widths_for_budget(column.budget, 1, PICTURE, CLASSES, boolit.activation(spec))


def parameters(spec: str, column: Column) -> Value:
    """By formula and by building the network; they must agree."""
    widths = widths_of(spec, column)
    return agreed(formula=_formula(spec, widths), built=_built(spec, widths))


def _formula(spec: str, widths: list[int]) -> int:
    return Cnn().parameters(PICTURE, CLASSES, widths, boolit.activation(spec))


def _built(spec: str, widths: list[int]) -> int:
    """The count of a network that is built and run once, which its shapes must survive."""
    with torch.device("meta"):  # neither memory nor random numbers are spent on initial weights
        network = Network(PICTURE, CLASSES, widths, spec)
    with torch.inference_mode():
        network.to_empty(device="cpu").eval()(torch.zeros(2, *PICTURE))
    return count_parameters(network)


def _written(widths: list[int]) -> str:
    first, second, third, _, fifth, _, *linear = widths
    return f"{first} {second} {third} {fifth}; {' '.join(map(str, linear))}"


def _partition(kind: str, spec: str) -> Check:
    """A partition needs a coarser multiple than 2→1, so its widths are those of 2→1 or a little below."""
    divisor = boolit.activation(spec).divisor
    fit = 0
    for column in COLUMNS:
        own, pairs = widths_of(spec, column), widths_of("or_ail", column)
        near = all(width % divisor == 0 and pair - divisor < width <= pair for width, pair in zip(own, pairs, strict=True))
        fit += near and isinstance(parameters(spec, column), int)
    note = f"multiples of {divisor}; the authors' partitions had the widths of 2→1"
    return Check(f"{kind}: columns whose networks are 2→1's, cut to what it needs", len(COLUMNS), fit, note=note)


def _heading(column: Column) -> Check:
    """The mean over the table's rows, partitions with the widths the authors gave them: those of 2→1."""
    partitions = {spec for _, spec in PARTITIONS}
    rows = ["or_ail" if spec in partitions else spec for spec in ROWS]
    mean = sum(_formula(spec, widths_of(spec, column)) for spec in rows) / len(rows)
    name = f"mean of {len(ROWS)} activations, column ~{column.heading}, {column.structure}"
    return Check(name, column.heading, rounded(mean, column.heading))


def _change_of_structure() -> Check:
    chosen = [budget for budget in (10**6 - 1, 10**6) if _is_large(budget)]
    note = "the authors' code changes at 100,000, which only the column ~260k could tell; its count cannot"
    return Check(
        "budget from which the structure is the large one", 10**6, chosen[0] if len(chosen) == 1 else "other", note=note
    )


def _is_large(budget: int) -> bool:
    widths = Cnn().widths_for_budget(budget, 1, PICTURE, CLASSES, boolit.activation("relu"))
    return widths[2] > 2 * widths[0]
