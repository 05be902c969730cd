"""Heads of the transfer experiments have the paper's widths and parameters."""

import pytest
import torch

import boolit
from boolit.errors import UserError
from boolit.lab.models import family
from boolit.lab.paper.verification.heads import CLASSES, TABLES, HeadRow, head_rows
from boolit.nn.width import count_parameters, round_width

SIZES = {TABLES[0]: "matched", TABLES[1]: "equal"}
FEATURES = (512,)


def widths_of(row: HeadRow, outputs: int) -> list[int]:
    activation = boolit.activation("identity" if row.activation == "linear" else row.activation)
    head = family({"name": "head", "sizes": SIZES[row.table]})
    return [
        round_width(width, activation.divisor)
        for width in head.widths_for_activation([512, 512], FEATURES, outputs, activation)
    ]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_the_printed_width_and_all_its_parameters(table: str) -> None:
    for row in head_rows():
        if row.table != table:
            continue
        spec = "identity" if row.activation == "linear" else row.activation
        head = family({"name": "head", "sizes": SIZES[table]})
        for dataset, outputs in CLASSES.items():
            widths = widths_of(row, outputs)
            assert widths == ([] if row.width is None else [row.width] * 2)
            count = head.parameters(FEATURES, outputs, widths, boolit.activation(spec))
            assert round(count / 1000) == row.thousands[dataset]
        with torch.device("meta"):
            assert count_parameters(head.build(1, FEATURES, outputs, widths, spec)) == count


def test_a_map_the_paper_has_not_is_matched_for_the_classes_there_are() -> None:
    head, activation = family({"name": "head", "sizes": "matched"}), boolit.activation("or_ail_k3")
    widths = head.widths_for_activation([512, 512], FEATURES, 10, activation)
    assert widths[0] % 3 == 0
    assert head.parameters(FEATURES, 10, widths, activation) == pytest.approx(530_442, rel=0.005)


def test_a_linear_head_is_one_linear_layer() -> None:
    head = family({"name": "head"})
    model = head.build(2, FEATURES, 10, [], "identity")
    model.initialise([0, 1])
    x = torch.randn(2, 3, 512)
    state = model.state_dict()
    expected = x @ state["linear.0.weight"].mT + state["linear.0.bias"].unsqueeze(1)
    assert torch.allclose(model(x), expected, atol=1e-5)
    with pytest.raises(UserError, match=r"use sweep\.width"):
        head.widths_for_budget(1000, 2, FEATURES, 10, boolit.activation("identity"))
