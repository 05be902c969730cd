"""Claims: what follows from the printed tables, and verdicts on runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from boolit.lab.paper.claims import Claim, Criterion, claim_table, claims, evaluate
from boolit.lab.paper.printed import table_rows

CLAIMS = {claim.id: claim for claim in claims()}


def runs(study: str, means: dict[str, float], n: int = 6, sd: float = 0.001, **columns: object) -> pd.DataFrame:
    """Return runs of a study whose values have exactly the given means and standard deviation."""
    noise = np.resize([-1.0, 1.0], n) * sd * np.sqrt((n - 1) / n)
    shared = {"study": study, "parameters": 1000, "depth": 2, "metric": "test_accuracy"} | columns
    return pd.concat(
        pd.DataFrame({"activation": spec, "seed": range(n), "value": mean + noise, **shared}) for spec, mean in means.items()
    )


def verdict(test: Criterion, ours: pd.DataFrame, table: str = "fig:jsb") -> str:
    return evaluate(Claim("id", "quote", "place", table, "", test), ours).verdict


@pytest.mark.parametrize(
    ("name", "counter_example"),
    [
        ("transfer-ail-above-relu", "or_and_nail_d − relu in STL-10 −0.01"),
        ("transfer-duplication", "in 41 of 56 comparisons"),
        ("transfer-partition", "or_nail − or_xnor_nail_p in StfCars −1.28"),
        ("cnn-mnist-best", "silu − or_and_xnor_ail_d"),
        ("covtype-selu", "selu − 94.15 in 3 +0.303"),
        ("covtype-tanh-xnor", "tanh − xnor_nail in 2 +0.189 (p = 2.9e-05)"),
        ("tmn-second", "or_xnor_ail_d − or_and_ail_d"),
        ("tmnx-ail", "relu − or_and_ail_d in Top-1 −0.046"),
        ("tmnx-ours-above-relu", "or_and_il_d − relu"),
        ("transfer-narrower", "xnor_ail − xnor_ail in tab:transfer-head-512 in STL-10"),
    ],
)
def test_findings_of_the_audit(name: str, counter_example: str) -> None:
    result = evaluate(CLAIMS[name])
    assert result.verdict == "does not follow"
    assert counter_example in result.details


@pytest.mark.parametrize("name", ["mlp-mnist-best", "cifar-above-relu", "transfer-best", "sran-subtasks", "tmnx-elu"])
def test_claims_that_hold(name: str) -> None:
    assert evaluate(CLAIMS[name]).verdict == "holds"


def test_a_difference_is_confirmed_contradicted_or_neither() -> None:
    test = Criterion(left="xnor_ail", right="relu max")
    assert verdict(test, runs("chorales", {"xnor_ail": 0.9, "relu": 0.8, "max": 0.85})) == "confirmed"
    assert verdict(test, runs("chorales", {"xnor_ail": 0.9, "relu": 0.8, "max": 0.95})) == "contradicted"
    assert verdict(test, runs("chorales", {"xnor_ail": 0.9, "relu": 0.8, "max": 0.9})) == "not confirmed"
    assert verdict(test, runs("chorales", {"xnor_ail": 0.9, "relu": 0.8, "max": 0.85}, n=1)) == "not confirmed"


def test_runs_without_a_named_activation_or_of_another_study_decide_nothing() -> None:
    test = Criterion(left="xnor_ail", right="relu")
    assert verdict(test, runs("chorales", {"xnor_ail": 0.9})) == "not testable here"
    assert verdict(test, runs("parity", {"xnor_ail": 0.9, "relu": 0.8})) == "not testable here"


def test_analogues_are_not_judged_and_decide_only_an_order() -> None:
    ranks, equal = Criterion(left="or_ail", right="relu max"), Criterion(left="or_ail", right="relu", p=[0.05, 1])
    means = {"or_ail": 0.9, "relu": 0.8, "max": 0.95}
    small, full = (runs("cifar10", means, profile=profile, parameters=6 * 10**6) for profile in ("analogue", "paper"))
    assert evaluate(CLAIMS["cifar-above-relu"], small).verdict == "not testable here"  # it names SiLU, too
    result = evaluate(Claim("id", "quote", "place", "tab:resnet50-cifar10", "", ranks), small)
    assert (result.verdict, result.test, result.n) == ("analogue", "ranks: 1 of 2 in this order; 3 of 15 cells run", "6, 6")
    for test in (equal, Criterion(left="relu", value=80), Criterion(left="relu", reaches=80)):
        assert verdict(test, small, "tab:resnet50-cifar10") == "not testable here"
    # An analogue with higher values does not take the place of a reproduction.
    both = pd.concat([small.assign(value=1 - small["value"] / 100), full])
    assert verdict(ranks, both, "tab:resnet50-cifar10") == verdict(ranks, full, "tab:resnet50-cifar10") == "contradicted"


def test_no_difference_between_best_and_worst() -> None:
    claim = CLAIMS["chorales-not-significant"]
    equal = runs("fig:jsb", {"relu": 0.7, "max": 0.7001, "silu": 0.7002}, sd=0.01)
    assert evaluate(claim, equal).verdict == "confirmed"
    assert evaluate(claim, runs("fig:jsb", {"relu": 0.7, "silu": 0.74}, sd=0.01)).verdict == "contradicted"
    assert evaluate(claim, runs("fig:jsb", {"relu": 0.7, "silu": 0.74}, n=1)).verdict == "not confirmed"


def test_picking_the_best_of_noise_contradicts_nothing() -> None:
    claim, generator = CLAIMS["chorales-not-significant"], np.random.default_rng(0)
    noise = runs("fig:jsb", dict.fromkeys("abcdefgh", 0.0), n=10)
    verdicts = [evaluate(claim, noise.assign(value=generator.normal(size=80))).verdict for _ in range(100)]
    assert verdicts.count("contradicted") <= 5


def test_lower_errors_are_better() -> None:
    claim = CLAIMS["parity8-xnor-above-relu"]
    ours = runs("parity8", {"xnor_ail": 0.03, "relu": 0.27}, metric="test_rmse")
    assert evaluate(claim, ours).verdict == "confirmed"
    reached = runs("a:parity", {"xnor_ail": 0.015}, metric="test_rmse", parameters=441)
    assert evaluate(CLAIMS["parity8-xnor"], reached).verdict == "confirmed"
    assert evaluate(CLAIMS["parity8-xnor"], reached.assign(value=0.03)).verdict == "not confirmed"


def test_runs_find_their_column_and_the_best_size_counts() -> None:
    claim = CLAIMS["covtype-tanh-best"]
    small, large = (
        runs("covertype-2", dict.fromkeys(table_rows("tab:mlp-covtype"), relu) | {"tanh": tanh}, depth=2, parameters=size)
        for tanh, relu, size in [(0.90, 0.92, 10_000), (0.97, 0.96, 100_000)]
    )
    assert evaluate(claim, small).verdict == "contradicted"
    assert evaluate(claim, pd.concat([small, large])).verdict == "confirmed"
    assert evaluate(claim, large.assign(depth=3)).verdict == "not testable here"
    means = dict.fromkeys(table_rows("tab:mlp-mnist"), 0.97) | {"xnor_ail": 0.92, "signed_geomean": 0.91}
    narrow = pd.concat(runs("mnist-mlp", means, parameters=size) for size in (16_384, 65_536))
    assert evaluate(CLAIMS["mlp-mnist-narrow"], narrow).verdict == "confirmed"
    best = evaluate(CLAIMS["mlp-mnist-best"], narrow)  # the best over all widths needs all widths
    assert best.verdict == "not testable here"


def test_a_part_of_the_cells_can_contradict_but_not_confirm() -> None:
    claim, good, bad = CLAIMS["covtype-tanh-best"], {"tanh": 0.97, "relu": 0.96}, {"tanh": 0.95, "relu": 0.96}
    rows = len(table_rows("tab:mlp-covtype"))
    for means, verdict in [(good, "not confirmed"), (bad, "contradicted")]:
        result = evaluate(claim, runs("covertype-2", means, depth=2))
        assert (result.verdict, result.test) == (verdict, f"Welch's t-test; 2 of {rows} cells run")


def test_a_mean_value() -> None:
    claim = CLAIMS["parity8-relu"]
    assert evaluate(claim, runs("parity8", {"relu": 0.271}, metric="test_rmse", parameters=225)).verdict == "confirmed"
    assert evaluate(claim, runs("parity8", {"relu": 0.2}, metric="test_rmse", parameters=225)).verdict == "contradicted"


def test_diverged_runs_are_left_out_and_the_table_has_every_claim() -> None:
    ours = runs("chorales", {"or_and_xnor_ail_d": 0.74, "relu": 0.70})
    ours.loc[0, "value"] = np.nan
    rows = claim_table(ours).set_index("id")
    assert len(rows) == len(CLAIMS)
    assert rows.loc["chorales-best", ["ours", "n", "test"]].tolist() == ["confirmed", "5, 5", "Welch's t-test"]


def test_our_runs_contradict_the_paper_on_chorales() -> None:
    row = claim_table().set_index("id").loc["chorales-not-significant"]
    assert row[["ours", "test", "n"]].tolist() == ["contradicted", "Welch's t-test", "10, 10"]
    assert row["p"] < 1e-6
