"""The checks of ResNet-50s, SRAN, TMN and TMNx agree, and notice when a layer, a width, a row or a count is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import pytest
import torch
from torch import nn

from boolit.lab import paper
from boolit.lab.models import preact_resnet, sran, tmn
from boolit.lab.models.base import parameter_count
from boolit.lab.models.preact_resnet import BlockShape, block_shapes
from boolit.lab.models.tmn import layers, network
from boolit.lab.paper.verification import Check, networks
from boolit.lab.paper.verification.networks import HEADINGS, RESNET_KINDS, SRAN_KINDS, UNEVEN

BASE = "relu (base SRAN)"


@pytest.fixture(autouse=True)
def counts_of_changed_networks_are_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    changed = "monkeypatch" in request.fixturenames
    if changed:
        parameter_count.cache_clear()
    yield
    if changed:
        parameter_count.cache_clear()


def failures(checks: Callable[[], Iterable[Check]]) -> set[str]:
    return {check.name for check in checks() if not check.ok}


class TestResnets:
    @staticmethod
    def failures(kinds: int = 2) -> set[str]:
        """What fails among the first kinds and the widths; all would take longer and tell no more."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(networks, "RESNET_KINDS", RESNET_KINDS[:kinds])
            patched.setattr(networks, "table_rows", lambda _: ["relu"])
            return {name for name in failures(networks.check_resnets) if "mean of" not in name}

    def test_every_count_of_every_kind_and_column_is_checked_for_both_datasets(self) -> None:
        checks = {check.name: check for check in networks.check_resnets()}
        assert all(check.ok for check in checks.values())
        for classes in ("CIFAR-10", "CIFAR-100"):
            for kind, *_ in RESNET_KINDS:
                assert {f"{kind}, {classes}, ~{heading}" for heading in HEADINGS} <= set(checks)
        assert checks["partition of 3, CIFAR-100, ~6M"].ours == 5_287_054 + 183_690
        assert checks["2→3, CIFAR-100, ~225M"].ours == 197_762_762 + 184_410

    def test_columns_are_those_of_the_tables(self) -> None:
        for label in ("tab:resnet50-cifar10", "tab:resnet50-cifar100"):
            cells = paper.table(label)
            assert len({cell.activation for cell in cells}) == 12
            assert tuple(dict.fromkeys(cell.column for cell in cells)) == HEADINGS

    def test_they_notice_a_bias(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = nn.Conv2d
        monkeypatch.setattr(nn, "Conv2d", lambda *sizes, padding=0, bias: true(*sizes, padding=padding, bias=not bias))
        assert len(self.failures()) == 20

    def test_they_notice_another_rounding(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def cut(bases: Sequence[int], factor: Fraction, divisor: int) -> list[int]:
            return [divisor * int(factor * width / divisor) for width in bases]

        monkeypatch.setattr(preact_resnet, "hidden_widths", cut)
        assert {"2→3: widths at factor 1", "2→3: widths at factor 2"} <= self.failures(0)

    def test_they_notice_an_embedding_that_scales(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def scaled(depth: preact_resnet.Depth, base: int, widths: Sequence[int], divisor: int) -> tuple[int, list[BlockShape]]:
            assert base == 64
            return block_shapes(depth, widths[0], widths, divisor)

        monkeypatch.setattr(preact_resnet, "block_shapes", scaled)
        failed = self.failures(1)
        assert "1→1, CIFAR-10, ~23M" not in failed
        assert {f"1→1, CIFAR-10, ~{heading}" for heading in ("6M", "10M", "67M", "225M")} <= failed


class TestSran:
    def test_every_count_agrees(self) -> None:
        checks = {check.name: check for check in networks.check_sran()}
        assert all(check.ok for check in checks.values())
        assert {f"{kind}: all" for kind, *_ in SRAN_KINDS} <= set(checks)
        assert checks["as published: all"].ours == 44_030_217
        assert checks["1→1: all"].ours == 45_618_441
        assert checks["2→1: all"].ours == checks["partition of 3: all"].ours == 44_574_473

    def test_rows_are_those_of_the_table(self) -> None:
        rows = {
            name.removeprefix("row ") for name in (check.name for check in networks.check_sran()) if name.startswith("row ")
        }
        assert {cell.activation for cell in paper.table("tab:sran")} == {BASE, *rows}
        assert set(UNEVEN) <= rows

    def test_they_notice_a_missing_layer_norm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(networks, "SRAN_KINDS", SRAN_KINDS[:2])
        monkeypatch.setattr(nn, "LayerNorm", lambda _: nn.Identity())
        modules = ("module of rows", "module of pairs", "module of rules", "all")
        assert failures(networks.check_sran) == {f"1→1: {part}" for part in modules}

    def test_they_notice_another_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(networks, "SRAN_KINDS", SRAN_KINDS[3:4])
        monkeypatch.setattr(sran, "EMBEDDED", (1, 5))
        found = failures(networks.check_sran)
        assert {"2→1: module of rules", "2→1: all"} <= found
        assert "2→1: module of rows" not in found


class TestTmns:
    def test_every_row_of_both_tables_is_checked_and_right(self) -> None:
        checks = {check.name: check for check in networks.check_tmns()}
        assert all(check.ok for check in checks.values())
        for label in ("tab:tmn-og", "tab:tmnx"):
            printed = {cell.activation for cell in paper.table(label)} - {"relu (TMN as published)"}
            assert {f"{label}, {spec}" for spec in printed} <= set(checks)
        assert checks["TMN, 2→1: parameters"].ours == 650_281
        assert checks["TMNx, partition of 3: parameters"].ours == 1_193_821

    def test_they_notice_a_bias_after_the_activation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Biased(layers.InnerLayer):
            def __init__(self, modules: int, embedding: int, width: int, spec: str, projected: int | None) -> None:
                super().__init__(modules, embedding, width, spec, projected)
                self.more = nn.Parameter(torch.zeros(modules, embedding))

        monkeypatch.setattr(network, "InnerLayer", Biased)
        assert {"TMNx, 1→1: parameters", "TMN, OR_AIL in the gater as well"} <= failures(networks.check_tmns)

    def test_they_notice_another_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tmn, "MATCHED", {})
        widths = {"TMNx, partition of 2: width", "TMNx, partition of 2: parameters", "tab:tmnx, or_xnor_ail_p"}
        assert widths <= failures(networks.check_tmns)
