"""tab:mlp-mnist: widths and parameters of the two-hidden-layer MLPs, whose columns are budgets of 2¹⁴, 2¹⁶, 2¹⁸ and 2²².

784 → Linear(w) → BN → act → Linear(w) → BN → act → Linear(10), biases everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import boolit
from boolit.lab.paper.verification.check import Check, agreed
from boolit.lab.paper.verification.transfer import built_parameters
from boolit.nn.width import mlp_parameters, width_for_budget

BUDGETS = {"16k": 2**14, "65k": 2**16, "262k": 2**18, "4M": 2**22}
KINDS = (
    # a spec that stands for its kind, and the kind's parameters nearest to each budget
    ("1→1", "relu", (16_410, 65_635, 262_510, 4_195_579)),
    ("2→1", "or_ail", (16_110, 65_062, 261_810, 4_193_002)),
    ("2→2", "or_and_ail_d", (16_410, 64_686, 262_510, 4_191_406)),
    ("2→3", "or_and_xnor_ail_d", (16_710, 65_746, 261_526, 4_198_154)),
    ("partition of 2", "or_xnor_ail_p", (16_110, 66_810, 261_810, 4_193_002)),
    ("partition of 3", "or_and_xnor_ail_p", (14_482, 65_062, 263_962, 4_193_002)),
)
RUNNERS_UP = {("2→3", "16k"): "18 (14,986)", ("partition of 2", "65k"): "76 (63,318)"}
ROWS = (
    "relu",
    "silu",
    "max",
    "max_min_d",
    "signed_geomean",
    "xnor_ail",
    "or_ail",
    "or_and_ail_d",
    "or_xnor_ail_p",
    "or_xnor_ail_d",
    "or_and_xnor_ail_p",
    "or_and_xnor_ail_d",
)


def checks() -> Iterator[Check]:
    """Each kind at each budget, then the columns' headings as means over the table's rows."""
    for kind, spec, counts in KINDS:
        for (heading, budget), exact in zip(BUDGETS.items(), counts, strict=True):
            yield _cell(kind, spec, heading, budget, exact)
    for heading, budget in BUDGETS.items():
        mean = sum(_count(spec, nearest_width(spec, budget)) for spec in ROWS) / len(ROWS)
        yield Check(f"mean of {len(ROWS)} activations, column ~{heading}", heading, rounded(mean, heading))


def _cell(kind: str, spec: str, heading: str, budget: int, exact: int) -> Check:
    width = nearest_width(spec, budget)
    count = agreed(formula=_count(spec, width), built=built_parameters(784, [width, width], 10, spec, batch_norm=True))
    runner_up = RUNNERS_UP.get((kind, heading))
    note = f"ours takes the width nearest to the budget; the paper's could also be {runner_up}" if runner_up else ""
    return Check(f"{kind}, width {width}", f"~{heading}", count, expected=exact, note=note)


def nearest_width(spec: str, budget: int) -> int:
    """The width of both hidden layers that comes nearest to a budget of parameters.

    Example:
        >>> nearest_width("relu", 2**18)
        250
    """
    return width_for_budget(lambda width: _count(spec, width), budget, boolit.activation(spec).divisor)


def _count(spec: str, width: int) -> int:
    return mlp_parameters(784, [width, width], 10, boolit.activation(spec), batch_norm=True)


def rounded(count: float, heading: str) -> str:
    """In the unit of a heading."""
    unit = heading[-1]
    return f"{round(count / {'k': 1e3, 'M': 1e6}[unit])}{unit}"
