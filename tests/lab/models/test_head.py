"""Heads of the transfer experiments; `boolit verify --only maps,transfer` checks their widths and parameters."""

import pytest
import torch

import boolit
from boolit.errors import UserError
from boolit.lab.models import family

FEATURES = (512,)


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
