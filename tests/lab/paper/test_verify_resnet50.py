"""The checks of the ResNet-50s agree, and notice when a layer, a width or a count is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from torch import nn

from boolit.lab import paper
from boolit.lab.models import preact_resnet
from boolit.lab.models import preact_resnet as _preact_network
from boolit.lab.models.preact_resnet import BlockShape, block_shapes
from boolit.lab.paper.verification import choose, resnet50
from boolit.lab.paper.verification.resnet50 import HEADINGS, KINDS, ROWS


def failures(kinds: int = 2) -> list[str]:
    """What fails among the first kinds; all would take longer and tell no more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resnet50, "KINDS", KINDS[:kinds])
        return [check.name for check in resnet50.checks() if not check.ok]


def test_every_count_of_every_kind_and_column_is_checked_for_both_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resnet50, "_built", resnet50._formula)  # building all networks is part of the tests of every family
    (family,) = choose(["resnet50-cifar"])
    checks = {check.name: check for check in family.checks()}
    assert all(check.ok for check in checks.values())
    for classes in ("CIFAR-10", "CIFAR-100"):
        for kind, *_ in KINDS:
            assert {f"{kind}, {classes}, ~{heading}" for heading in HEADINGS} <= set(checks)
    assert checks["partition of 3, CIFAR-100, ~6M"].ours == 5_287_054 + 183_690
    assert checks["2→3, CIFAR-100, ~225M"].ours == 197_762_762 + 184_410


def test_rows_and_columns_are_those_of_the_tables() -> None:
    for label in ("tab:resnet50-cifar10", "tab:resnet50-cifar100"):
        cells = paper.table(label)
        assert {cell.activation for cell in cells} == set(ROWS)
        assert tuple(dict.fromkeys(cell.column for cell in cells)) == HEADINGS


def test_it_notices_a_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    true = nn.Conv2d
    monkeypatch.setattr(nn, "Conv2d", lambda *sizes, padding=0, bias: true(*sizes, padding=padding, bias=not bias))
    assert len(failures()) == 20


def test_it_notices_another_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(bases: Sequence[int], factor: Fraction, divisor: int) -> list[int]:
        return [divisor * int(factor * width / divisor) for width in bases]

    monkeypatch.setattr(preact_resnet, "hidden_widths", cut)
    assert {"2→3: widths at factor 1", "2→3: widths at factor 2"} <= set(failures(0))


def test_it_notices_an_embedding_that_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(depth: preact_resnet.Depth, base: int, widths: Sequence[int], divisor: int) -> tuple[int, list[BlockShape]]:
        assert base == 64
        return block_shapes(depth, widths[0], widths, divisor)

    for module in (preact_resnet, _preact_network):
        monkeypatch.setattr(module, "block_shapes", scaled)
    failed = failures(1)
    assert "1→1, CIFAR-10, ~23M" not in failed
    assert {f"1→1, CIFAR-10, ~{heading}" for heading in ("6M", "10M", "67M", "225M")} <= set(failed)
