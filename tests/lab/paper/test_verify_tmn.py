"""The checks of TMN and TMNx agree, and notice when a layer, a width or a row is wrong."""

import pytest
import torch

from boolit.lab import paper
from boolit.lab.models import tmn
from boolit.lab.models.tmn import layers as _tmn_layers
from boolit.lab.models.tmn import network as _tmn_network
from boolit.lab.paper.verification import tmn as checked


def failures() -> list[str]:
    return [check.name for check in checked.checks() if not check.ok]


def test_every_row_of_both_tables_is_checked_and_right() -> None:
    checks = {check.name: check for check in checked.checks()}
    assert all(check.ok for check in checks.values())
    for label in ("tab:tmn-og", "tab:tmnx"):
        printed = {cell.activation for cell in paper.table(label)} - {"relu (TMN as published)"}
        assert {f"{label}, {spec}" for spec in printed} <= set(checks)
    assert checks["TMN, 2→1: parameters"].ours == 650_281
    assert checks["TMNx, partition of 3: parameters"].ours == 1_193_821


def test_a_bias_after_the_activation_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Biased(_tmn_layers.InnerLayer):
        def __init__(self, modules: int, embedding: int, width: int, spec: str, projected: int | None) -> None:
            super().__init__(modules, embedding, width, spec, projected)
            self.more = torch.nn.Parameter(torch.zeros(modules, embedding))

    monkeypatch.setattr(_tmn_network, "InnerLayer", Biased)
    assert "TMNx, 1→1: parameters" in failures()


def test_another_width_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tmn, "MATCHED", {})
    found = failures()
    assert "TMNx, partition of 2: width" in found
    assert "TMNx, partition of 2: parameters" in found
    assert "tab:tmnx, or_xnor_ail_p" in found
