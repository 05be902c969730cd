"""Every check agrees, and each family fails when what it checks is broken."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from scipy import integrate, stats
from torch import Tensor, nn

import boolit.nn.width
from boolit.errors import UserError
from boolit.lab.models import base, cnn, sran, tmn
from boolit.lab.models.base import parameter_count
from boolit.lab.paper import frame, labels, table, table_rows, tables
from boolit.lab.paper.verification import FAMILIES, Check, choose, gates, networks, verify
from boolit.lab.paper.verification.networks import Network, read

CHECKS = {family.name: family.checks for family in FAMILIES}


@pytest.fixture(scope="module")
def results() -> dict[str, list[Check]]:
    return {family.name: checks for family, checks in verify()}


@pytest.mark.parametrize("name", list(CHECKS))
def test_every_check_agrees(results: dict[str, list[Check]], name: str) -> None:
    assert [check for check in results[name] if not check.ok] == []
    names = [check.name for check in results[name]]
    assert len(set(names)) == len(names) >= 6


def test_every_kind_and_row_of_the_large_networks_is_counted() -> None:
    for label in ("tab:mlp-mnist", "tab:resnet50-cifar10", "tab:resnet50-cifar100"):
        counted = Counter(row["column"] for row in read("counts.csv", label))
        assert counted == dict.fromkeys((cell.column for cell in table(label)), 6)
    for label in ("tab:sran", "tab:tmn-og", "tab:tmnx"):
        rows = {cell.activation for cell in table(label)} - {"relu (TMN as published)"}
        assert {row["activation"] for row in read("sizes.csv", label)} == rows


class TestCheck:
    def test_compares_with_what_is_expected_rather_than_printed(self) -> None:
        assert Check("count", "578k", 578_276, expected=578_276).ok
        assert not Check("count", "578k", 578_277, expected=578_276).ok

    @pytest.mark.parametrize("ours", [1.0 + 2e-6, 1.0 - 2e-6, math.nan, math.inf, "1.0"])
    def test_fails_beyond_the_tolerance(self, ours: float | str) -> None:
        assert not Check("number", 1.0, ours, tolerance=1e-6).ok

    def test_families_keep_their_order_and_unknown_names_are_refused(self) -> None:
        assert [family.name for family in choose(["transfer", "maps"])] == ["maps", "transfer"]
        assert choose([]) == list(FAMILIES)
        with pytest.raises(UserError, match=r"unknown family of checks 'cnn'; choose from normalization, .*mnist-mlp"):
            choose(["maps", "cnn"])


class TestTables:
    def test_every_label_has_a_table(self) -> None:
        assert {"tab:datasets", "tab:ranking", "tab:tmnx-hidden", "tab:hparam-search"} < set(labels())
        assert all(len(frame(label)) > 5 for label in labels())
        assert len(tables()) == 11
        with pytest.raises(UserError, match="tab:datasets is not a table of results"):
            table("tab:datasets")

    def test_the_hidden_tmnx_repeats_a_row_and_has_the_printed_baselines(self) -> None:
        hidden, printed = ({(c.activation, c.column): c.mean for c in table(f"tab:{name}")} for name in ("tmnx-hidden", "tmnx"))
        assert {hidden["or_ail", k] - hidden["or_xnor_ail_p", k] for k in ("Top-1", "Top-2", "Top-3")} == {0}
        changed = {spec for spec, column in hidden if hidden[spec, column] != printed[spec, column]}
        assert changed == {"or_xnor_ail_p", "or_and_xnor_ail_p", "or_and_xnor_ail_d"}
        assert "signed_geomean" not in table_rows("tab:tmnx-hidden")


class TestAgainstOtherImplementations:
    def test_quadrature_of_xnor_ail(self) -> None:
        square, _ = integrate.quad(lambda m: 2 * m * (2 * stats.norm.sf(m)) ** 2, 0, math.inf)
        assert gates.integrate("xnor", "ail") == pytest.approx((0, math.sqrt(square)), abs=1e-12)

    def test_quadrature_of_or_il(self) -> None:
        def density(y: float, x: float) -> float:
            return math.log(math.exp(x) + math.exp(y) + math.exp(x + y)) * math.exp(-(x * x + y * y) / 2) / math.tau

        mean, _ = integrate.dblquad(density, -7, 7, -7, 7, epsabs=1e-5)
        assert gates.integrate("or", "il")[0] == pytest.approx(mean, abs=1e-5)


class TestItFailsWhen:
    """One thing is broken at a time; the family that guards it must fail."""

    @pytest.fixture(autouse=True)
    def forget_counts(self) -> Iterator[None]:
        parameter_count.cache_clear()
        yield
        parameter_count.cache_clear()

    @staticmethod
    def failures(name: str) -> list[str]:
        return [check.name for check in CHECKS[name]() if not check.ok]

    def test_a_gate_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = gates.combine

        def nearly(op: str, *logits: Tensor, form: str) -> Tensor:
            return true(op, *logits, form=form) * (1 + 1e-5 * ((op, form) == ("or", "ail")))

        monkeypatch.setattr(gates, "combine", nearly)
        assert "or_ail(x, 0) = ReLU(x): error" in self.failures("identities")
        assert "or_ail sd" in self.failures("normalization")

    def test_a_normalization_constant_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = gates.combine
        monkeypatch.setattr(gates, "combine", lambda op, *x, form: true(op, *x, form=form) + 1e-9 * (form == "nail"))
        assert {"ail: our constants against quadrature", "nail: distance from mean 0, sd 1"} <= set(
            self.failures("normalization")
        )

    def test_an_operation_is_swapped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true, swap = gates.combine, {"implies": "implied_by", "implied_by": "implies"}
        monkeypatch.setattr(gates, "combine", lambda op, *logits, form: true(swap.get(op, op), *logits, form=form))
        assert self.failures("identities") == [f"truth table of {op}, il and ail" for op in swap]

    def test_a_gradient_vanishes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = gates.combine
        monkeypatch.setattr(gates, "combine", lambda op, *logits, form: true(op, *logits, form=form).relu())
        assert {f"{op}_ail: the larger partial derivative is at least" for op in ("and", "or")} < set(
            self.failures("identities")
        )

    def test_a_width_is_rounded_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            networks, "round_width", lambda width, width_multiple: width_multiple * math.ceil(Fraction(width) / width_multiple)
        )
        assert self.failures("maps") == [f"tab:transfer-nparam-{name}: widths that agree" for name in ("big", "512")]

    def test_parameters_are_miscounted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = boolit.nn.width.count_parameters
        monkeypatch.setattr(base, "count_parameters", lambda network: true(network) - 10)
        assert len(self.failures("transfer")) >= 40

    def test_a_budget_is_missed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = base.width_for_budget
        monkeypatch.setattr(base, "width_for_budget", lambda count, budget, step: true(count, budget, step) + step)
        assert len(self.failures("mnist-mlp")) >= 24

    def test_a_cnn_has_other_widths_or_layers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        true = nn.Conv2d
        with monkeypatch.context() as patched:
            patched.setattr(cnn, "round_down", boolit.nn.width.round_width)
            assert len(self.failures("mnist-cnn")) >= 15
        parameter_count.cache_clear()
        monkeypatch.setattr(nn, "Conv2d", lambda *sizes, padding: true(*sizes, padding=padding, bias=False))
        assert len(self.failures("mnist-cnn")) >= 20

    def test_sran_has_no_layer_norm_or_other_widths(self, monkeypatch: pytest.MonkeyPatch) -> None:
        (expected,) = (row["parts"] for row in read("counts.csv", "tab:sran") if row["kind"] == "2→1")
        with monkeypatch.context() as patched:
            patched.setattr(nn, "LayerNorm", lambda _: nn.Identity())
            assert Network("tab:sran", "layernorm", "or_ail").parts != expected
        monkeypatch.setattr(sran, "EMBEDDED", (1, 5))
        assert Network("tab:sran", "layernorm", "or_ail").parts != expected

    def test_tmnx_has_other_widths(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tmn, "MATCHED", {})
        assert "tab:tmnx, row or_xnor_ail_p" in self.failures("tmn")
