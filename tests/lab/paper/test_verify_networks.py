"""The checks of ResNet-50s, SRAN, TMN and TMNx notice when a layer, a width or a count is wrong."""

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
from boolit.lab.paper.verification.networks import HEADINGS, RESNET_KINDS, SRAN_KINDS


@pytest.fixture(autouse=True)
def counts_of_changed_networks_are_forgotten() -> Iterator[None]:
    parameter_count.cache_clear()
    yield
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
