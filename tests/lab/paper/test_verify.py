"""Every check agrees, and each family notices when the thing it checks is broken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import boolit.nn.width
from boolit.errors import UserError
from boolit.lab import paper
from boolit.lab.models import base, cnn
from boolit.lab.models.base import parameter_count
from boolit.lab.models.mlp import Head
from boolit.lab.paper.verification import FAMILIES, Check, choose, gates, heads, mnist, verify
from boolit.lab.paper.verification.check import count_and_run, uniform
from boolit.lab.paper.verification.heads import CLASSES, TABLES, head_rows
from boolit.lab.paper.verification.networks import HEADINGS, RESNET_KINDS, SRAN_KINDS, UNEVEN


@pytest.fixture(scope="module")
def results() -> dict[str, list[Check]]:
    return {family.name: checks for family, checks in verify()}


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_every_check_agrees(results: dict[str, list[Check]], name: str) -> None:
    assert [check for check in results[name] if not check.ok] == []
    names = [check.name for check in results[name]]
    assert len(set(names)) == len(names) >= 10


def test_slips_are_explained_and_their_target_is_not_the_papers(results: dict[str, list[Check]]) -> None:
    slips = [check for checks in results.values() for check in checks if check.slip]
    assert len(slips) == 14
    for check in slips:
        assert " says " in check.note or "proof" in check.note
        assert check.target != check.paper or "up to the order of channels" in check.note


class TestNetworks:
    """Every row and column of the tables of large networks is checked, with the exact counts."""

    def test_resnets_of_every_kind_and_column_for_both_datasets(self, results: dict[str, list[Check]]) -> None:
        counts = {check.name: check.ours for check in results["resnet50-cifar"]}
        for classes in ("CIFAR-10", "CIFAR-100"):
            for kind, *_ in RESNET_KINDS:
                assert {f"{kind}, {classes}, ~{heading}" for heading in HEADINGS} <= set(counts)
        assert counts["partition of 3, CIFAR-100, ~6M"] == 5_287_054 + 183_690
        assert counts["2→3, CIFAR-100, ~225M"] == 197_762_762 + 184_410

    def test_sran(self, results: dict[str, list[Check]]) -> None:
        counts = {check.name: check.ours for check in results["sran"]}
        assert {f"{kind}: all" for kind, *_ in SRAN_KINDS} <= set(counts)
        assert counts["as published: all"] == 44_030_217
        assert counts["1→1: all"] == 45_618_441
        assert counts["2→1: all"] == counts["partition of 3: all"] == 44_574_473
        rows = {name.removeprefix("row ") for name in counts if name.startswith("row ")}
        assert {cell.activation for cell in paper.table("tab:sran")} == {"relu (base SRAN)", *rows}
        assert set(UNEVEN) <= rows

    def test_tmn_and_tmnx(self, results: dict[str, list[Check]]) -> None:
        counts = {check.name: check.ours for check in results["tmn"]}
        for label in ("tab:tmn-og", "tab:tmnx"):
            printed = {cell.activation for cell in paper.table(label)} - {"relu (TMN as published)"}
            assert {f"{label}, {spec}" for spec in printed} <= set(counts)
        assert counts["TMN, 2→1: parameters"] == 650_281
        assert counts["TMNx, partition of 3: parameters"] == 1_193_821


class TestCheck:
    def test_compares_with_what_is_expected_rather_than_printed(self) -> None:
        assert Check("count", "578k", 578_276, expected=578_276).ok
        assert not Check("count", "578k", 578_277, expected=578_276).ok

    @pytest.mark.parametrize("ours", [1.0 + 2e-6, 1.0 - 2e-6, math.nan, math.inf, "1.0"])
    def test_fails_beyond_the_tolerance(self, ours: float | str) -> None:
        assert not Check("number", 1.0, ours, tolerance=1e-6).ok

    def test_tolerance_is_absolute_and_includes_itself(self) -> None:
        assert Check("number", 1.0, 1.5, tolerance=0.5).ok

    def test_ways_that_disagree_fail_it(self) -> None:
        assert not Check("map", "2→1", "stated 2→2, happened 2→1").ok
        assert uniform({"a": "1", "b": "1", "c": "2", "d": "3"}) == "1, but c 2 and 1 more"


class TestChoice:
    def test_keeps_the_families_own_order(self) -> None:
        assert [family.name for family in choose(["transfer", "maps"])] == ["maps", "transfer"]
        assert choose([]) == list(FAMILIES)

    def test_refuses_an_unknown_name(self) -> None:
        with pytest.raises(UserError, match=r"unknown family of checks 'cnn'; choose from normalisation, .*mnist-mlp"):
            choose(["maps", "cnn"])


class TestQuadrature:
    """The quadrature that judges our table of moments, judged by scipy's."""

    def test_xnor_ail(self) -> None:
        square, _ = integrate.quad(lambda m: 2 * m * (2 * stats.norm.sf(m)) ** 2, 0, math.inf)
        assert gates.integrate("xnor", "ail") == pytest.approx((0, math.sqrt(square)), abs=1e-12)

    def test_or_il(self) -> None:
        def density(y: float, x: float) -> float:
            return math.log(math.exp(x) + math.exp(y) + math.exp(x + y)) * math.exp(-(x * x + y * y) / 2) / math.tau

        mean, _ = integrate.dblquad(density, -7, 7, -7, 7, epsabs=1e-5)
        assert gates.integrate("or", "il")[0] == pytest.approx(mean, abs=1e-5)


class TestItNoticesWhatIsBroken:
    """One thing is broken at a time; the family that guards it must fail."""

    @pytest.fixture(autouse=True)
    def counts_of_changed_networks_are_forgotten(self) -> Iterator[None]:
        parameter_count.cache_clear()
        yield
        parameter_count.cache_clear()

    @staticmethod
    def failures(checks: Callable[[], Iterable[Check]]) -> list[str]:
        return [check.name for check in checks() if not check.ok]

    def test_a_moment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = gates.moments
        monkeypatch.setattr(gates, "moments", lambda op, form: (true(op, form)[0] + 1e-5, true(op, form)[1]))
        assert len(self.failures(gates.check_moments)) >= 8

    def test_a_gate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = gates.combine

        def nearly(op: str, *logits: Tensor, form: str) -> Tensor:
            return true(op, *logits, form=form) + (1e-9 if (op, form) == ("or", "ail") else 0)

        monkeypatch.setattr(gates, "combine", nearly)
        assert "or: at the origin" in self.failures(gates.check_difference)
        assert "or_ail(x, 0) = ReLU(x): error" in self.failures(gates.check_identities)
        assert "ail: our table against quadrature" in self.failures(gates.check_moments)

    def test_a_truth_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = gates.combine

        def swapped(op: str, *logits: Tensor, form: str) -> Tensor:
            swap = {"implies": "implied_by", "implied_by": "implies"}
            return true(swap.get(op, op), *logits, form=form)

        monkeypatch.setattr(gates, "combine", swapped)
        assert self.failures(gates.check_identities) == [
            "truth table of implies, il and ail",
            "truth table of implied_by, il and ail",
        ]

    def test_a_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(heads, "round_width", lambda nominal, divisor: divisor * math.ceil(Fraction(nominal) / divisor))
        assert len(self.failures(heads.check_maps)) == 3

    def test_a_map(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(boolit.nn.SignedGeomean, "map", (2, 2))
        (check,) = [check for check in heads.check_maps() if not check.ok]
        assert check.ours == "2→1, but signed_geomean stated 2→2, happened 2→1"

    def test_a_count_of_parameters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = boolit.nn.width.count_parameters
        for module in (base, boolit.nn.width):
            monkeypatch.setattr(module, "count_parameters", lambda network: true(network) - 10)
        assert len(self.failures(heads.check_heads)) >= 40

    def test_a_search_for_the_width(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = base.width_for_budget
        monkeypatch.setattr(base, "width_for_budget", lambda count, budget, step: true(count, budget, step) + step)
        assert len(self.failures(mnist.check_mlps)) >= 24

    def test_the_widths_of_a_cnn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cnn, "round_down", boolit.nn.width.round_width)
        assert len(self.failures(mnist.check_cnns)) >= 20

    def test_the_size_of_a_cnn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = cnn.size_for_budget
        monkeypatch.setattr(cnn, "size_for_budget", lambda *arguments: 1.01 * true(*arguments))
        assert len(self.failures(mnist.check_cnns)) >= 20

    def test_the_layers_of_a_cnn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = nn.Conv2d
        monkeypatch.setattr(nn, "Conv2d", lambda *sizes, padding: true(*sizes, padding=padding, bias=False))
        failed = self.failures(mnist.check_cnns)
        assert len([name for name in failed if name.endswith("parameters")]) == 20


class TestPaperTable:
    """The data file against what the paper's tables say of themselves."""

    def test_has_every_row_of_both_tables(self) -> None:
        for table in TABLES:
            rows = [row for row in head_rows() if row.table == table]
            assert len(rows) == len({row.activation for row in rows}) == 46
            assert rows[0].activation == "linear"
            assert rows[0].width is None

    def test_every_activation_is_one_of_ours_and_every_width_fits_it(self) -> None:
        for row in head_rows()[1:]:
            if row.width is not None:
                boolit.activation(row.activation).out_features(row.width)

    def test_datasets_of_ten_classes_have_equal_counts(self) -> None:
        assert CLASSES["CIFAR10"] == CLASSES["STL-10"] == CLASSES["SVHN"] == 10
        for row in head_rows():
            assert row.thousands["CIFAR10"] == row.thousands["STL-10"] == row.thousands["SVHN"]


def count_head(widths: list[int], outputs: int, spec: str) -> int:
    return count_and_run(Head(), (8,), outputs, widths, spec, torch.zeros(1, 2, 8))


def test_a_built_network_has_a_slope_for_every_prelu() -> None:
    assert count_head([16, 16], 10, "prelu") == count_head([16, 16], 10, "relu") + 2


def test_a_network_whose_width_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 6"):
        count_head([16], 2, "or_and_xnor_ail_p")


def test_a_network_that_cannot_run_is_not_counted() -> None:
    with pytest.raises(RuntimeError, match="size"):
        count_and_run(Head(), (8,), 2, [16], "relu", torch.zeros(1, 2, 9))
