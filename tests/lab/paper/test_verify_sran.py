"""The checks of SRAN agree, and notice when a layer or a width is wrong."""

from __future__ import annotations

import pytest
from torch import nn

from boolit.lab import paper
from boolit.lab.models import sran as sran_family
from boolit.lab.paper.verification import sran
from boolit.lab.paper.verification.sran import KINDS, ROWS, UNEVEN

BASE = "relu (base SRAN)"


def failures() -> set[str]:
    sran._built.cache_clear()
    return {check.name for check in sran.checks() if not check.ok}


def test_every_count_agrees() -> None:
    checks = {check.name: check for check in sran.checks()}
    assert all(check.ok for check in checks.values())
    assert {f"{kind}: all" for kind, *_ in KINDS} <= set(checks)
    assert checks["as published: all"].ours == 44_030_217
    assert checks["1→1: all"].ours == 45_618_441
    assert checks["2→1: all"].ours == checks["partition of 3: all"].ours == 44_574_473


def test_rows_are_those_of_the_table() -> None:
    assert {cell.activation for cell in paper.table("tab:sran")} == {BASE, *ROWS}
    assert set(UNEVEN) <= set(ROWS)


def test_it_notices_a_missing_layer_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sran, "KINDS", KINDS[:2])
    monkeypatch.setattr(nn, "LayerNorm", lambda _: nn.Identity())
    assert failures() == {f"1→1: {part}" for part in ("module of rows", "module of pairs", "module of rules", "all")}
    sran._built.cache_clear()


def test_it_notices_another_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sran, "KINDS", KINDS[3:4])
    monkeypatch.setattr(sran_family, "EMBEDDED", (1, 5))
    found = failures()
    assert {"2→1: module of rules", "2→1: all"} <= found
    assert "2→1: module of rows" not in found
    sran._built.cache_clear()
