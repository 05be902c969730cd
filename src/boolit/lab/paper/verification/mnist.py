"""tab:mlp-mnist and tab:cnn-mnist: widths and parameters of networks whose columns are budgets of 2¹⁴, 2¹⁶, 2¹⁸ and 2²².

MLP: 784 → Linear(w) → BN → act → Linear(w) → BN → act → Linear(10). CNN: six of convolution 3×3 → BN → act, pooled after every
second; Linear → act → Linear → act → Linear(10). Biases everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

import boolit
from boolit.lab.models.cnn import Cnn, Structure
from boolit.lab.models.mlp import Mlp
from boolit.lab.paper import table_rows
from boolit.lab.paper.verification.check import Check, count_and_run

IMAGE, CLASSES = (28, 28), 10
MLP = Mlp(normalization="batch")
BUDGETS = {"16k": 2**14, "65k": 2**16, "262k": 2**18, "4M": 2**22}
MLP_KINDS = (
    # a spec that stands for its kind, and the kind's parameters nearest to each budget
    ("1→1", "relu", (16_410, 65_635, 262_510, 4_195_579)),
    ("2→1", "or_ail", (16_110, 65_062, 261_810, 4_193_002)),
    ("2→2", "or_and_ail_d", (16_410, 64_686, 262_510, 4_191_406)),
    ("2→3", "or_and_xnor_ail_d", (16_710, 65_746, 261_526, 4_198_154)),
    ("partition of 2", "or_xnor_ail_p", (16_110, 66_810, 261_810, 4_193_002)),
    ("partition of 3", "or_and_xnor_ail_p", (14_482, 65_062, 263_962, 4_193_002)),
)
RUNNERS_UP = {("2→3", "16k"): "18 (14,986)", ("partition of 2", "65k"): "76 (63,318)"}


def check_mlps() -> Iterator[Check]:
    """Each kind at each budget, then the columns' headings as means over the table's rows."""
    for kind, spec, counts in MLP_KINDS:
        for (heading, budget), exact in zip(BUDGETS.items(), counts, strict=True):
            yield _mlp(kind, spec, heading, budget, exact)
    rows = table_rows("tab:mlp-mnist")
    for heading, budget in BUDGETS.items():
        mean = sum(_mlp_parameters(spec, budget) for spec in rows) / len(rows)
        yield Check(f"mean of {len(rows)} activations, column ~{heading}", heading, in_unit(mean, heading))


def _mlp(kind: str, spec: str, heading: str, budget: int, exact: int) -> Check:
    widths = mlp_widths(spec, budget)
    count = count_and_run(MLP, IMAGE, CLASSES, widths, spec, torch.zeros(2, *IMAGE))
    runner_up = RUNNERS_UP.get((kind, heading))
    note = f"ours takes the width nearest to the budget; the paper's could also be {runner_up}" if runner_up else ""
    return Check(f"{kind}, width {widths[0]}", f"~{heading}", count, expected=exact, note=note)


def mlp_widths(spec: str, budget: int) -> list[int]:
    """The widths of both hidden layers that come nearest to a budget of parameters.

    Example:
        >>> mlp_widths("relu", 2**18)
        [250, 250]
    """
    return MLP.widths_for_budget(budget, 2, IMAGE, CLASSES, boolit.activation(spec))


def _mlp_parameters(spec: str, budget: int) -> int:
    return MLP.parameters(IMAGE, CLASSES, mlp_widths(spec, budget), boolit.activation(spec))


def in_unit(count: float, heading: str) -> str:
    """A count in the unit of a heading, as the tables print it."""
    unit = heading[-1]
    return f"{round(count / {'k': 1e3, 'M': 1e6}[unit])}{unit}"


class CnnColumn(NamedTuple):
    """A column of the table, and the structure of its networks."""

    heading: str
    budget: int
    structure: Structure


COLUMNS = (
    CnnColumn("15k", 2**14, "small"),
    CnnColumn("63k", 2**16, "small"),
    CnnColumn("260k", 2**18, "small"),
    CnnColumn("260k", 2**18, "large"),
    CnnColumn("4M", 2**22, "large"),
)
CNN_KINDS = (
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


def check_cnns() -> Iterator[Check]:
    """Each kind in each column, the partitions, the headings as means over the rows, and where the structure changes."""
    for kind, spec, widths, counts in CNN_KINDS:
        for column, wanted, exact in zip(COLUMNS, widths, counts, strict=True):
            name = f"{kind}, {column.structure} at {column.budget:,}"
            yield Check(f"{name}: widths", f"~{column.heading}", _format_widths(cnn_widths(spec, column)), expected=wanted)
            count = count_and_run(Cnn(), IMAGE, CLASSES, cnn_widths(spec, column), spec, torch.zeros(2, *IMAGE))
            yield Check(f"{name}: parameters", f"~{column.heading}", count, expected=exact)
    for kind, spec in PARTITIONS:
        yield _partition(kind, spec)
    for column in COLUMNS:
        yield _cnn_heading(column)
    yield _change_of_structure()


def cnn_widths(spec: str, column: CnnColumn) -> list[int]:
    """The widths of a network of a column.

    Example:
        >>> cnn_widths("relu", COLUMNS[0])
        [13, 13, 13, 13, 19, 19, 26, 19]
    """
    family = Cnn(structure=column.structure)
    return family.widths_for_budget(column.budget, 1, IMAGE, CLASSES, boolit.activation(spec))


def _cnn_parameters(spec: str, column: CnnColumn) -> int:
    return Cnn().parameters(IMAGE, CLASSES, cnn_widths(spec, column), boolit.activation(spec))


def _format_widths(widths: list[int]) -> str:
    first, second, third, _, fifth, _, *linear = widths
    return f"{first} {second} {third} {fifth}; {' '.join(map(str, linear))}"


def _partition(kind: str, spec: str) -> Check:
    """A partition has a larger divisor than 2→1, so its widths are those of 2→1 or slightly below."""
    divisor = boolit.activation(spec).divisor
    fit = 0
    for column in COLUMNS:
        own, pairs = cnn_widths(spec, column), cnn_widths("or_ail", column)
        near = all(width % divisor == 0 and pair - divisor < width <= pair for width, pair in zip(own, pairs, strict=True))
        count = count_and_run(Cnn(), IMAGE, CLASSES, own, spec, torch.zeros(2, *IMAGE))
        fit += near and count <= _cnn_parameters("or_ail", column)
    note = f"multiples of {divisor}; the authors' partitions had the widths of 2→1"
    return Check(f"{kind}: columns whose networks are 2→1's, cut to what it needs", len(COLUMNS), fit, note=note)


def _cnn_heading(column: CnnColumn) -> Check:
    """The mean over the table's rows, where the authors' partitions have the widths of 2→1."""
    partitions = {spec for _, spec in PARTITIONS}
    rows = ["or_ail" if spec in partitions else spec for spec in table_rows("tab:cnn-mnist")]
    mean = sum(_cnn_parameters(spec, column) for spec in rows) / len(rows)
    name = f"mean of {len(rows)} activations, column ~{column.heading}, {column.structure}"
    return Check(name, column.heading, in_unit(mean, column.heading))


def _change_of_structure() -> Check:
    widths = {n: Cnn().widths_for_budget(n, 1, IMAGE, CLASSES, boolit.activation("relu")) for n in (10**6 - 1, 10**6)}
    large = [budget for budget, (first, _, third, *_) in widths.items() if third > 2 * first]
    note = "the authors' code changes at 100,000, which only the column ~260k could tell; its count cannot"
    ours = large[0] if len(large) == 1 else "other"
    return Check("budget from which the structure is the large one", 10**6, ours, note=note)
