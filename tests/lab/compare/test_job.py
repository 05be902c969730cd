"""A comparison from the table to the saved model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file
from sklearn.metrics import log_loss, r2_score, roc_auc_score

import boolit
from boolit.errors import UserError
from boolit.lab.compare import CompareConfig, scoring
from boolit.lab.compare.job import CompareJob, CompareResult
from boolit.lab.compare.runs import choose_rates, final_plan, recipe, trial_epochs, trial_plan
from boolit.lab.results.store import Store
from boolit.lab.runs import Result
from boolit.lab.training.trainer import StackedTraining

SPECS = ("relu", "prelu", "or_and_xnor_nail_d")


def config(folder: Path, name: str = "table", target: str = "class", **options: Any) -> CompareConfig:
    small = {"activations": SPECS, "budget": 400, "splits": 5, "epochs": 3, "rates": (0.01, 0.1), "drop": ("leak", "price")}
    if name != "table" or target == "price":
        small |= {"drop": () if name != "table" else ("leak", "class"), "activations": ("relu",)}
    return CompareConfig(folder / f"{name}.csv", target, **{**small, **options})


@pytest.fixture(scope="module")
def result(folder: Path) -> CompareResult:
    return CompareJob.prepare(config(folder)).run(folder / "out", progress=False)


def place(result: Result) -> tuple[str, int | None]:
    return result.config.activation, result.config.split


def finals(job: CompareJob, store: Store) -> dict[Any, Result]:
    trials = trial_plan(job.plan, job.splits, job.config.rates)
    rates = choose_rates(store.frame(run.key for run in trials.runs))
    return {place(each): each for each in store.results([run.key for run in final_plan(job.plan, rates).runs])}


def test_rates_are_chosen_on_each_split_without_test_rows(folder: Path, result: CompareResult) -> None:
    job = CompareJob.prepare(config(folder))
    with Store(folder / "out") as store:
        trials = store.results([run.key for run in trial_plan(job.plan, job.splits, job.config.rates).runs])
    assert len(trials) == len(SPECS) * 5 * 2
    assert not any(name.startswith("test_") for trial in trials for name in trial.metrics)
    for where, rate in result.rates.items():
        tried = [trial for trial in trials if place(trial) == where]
        assert min(tried, key=lambda trial: trial.metrics["valid_loss"]).config.training.learning_rate == rate
    assert set(result.rates) == {(spec, split) for spec in SPECS for split in range(1, 6)}


def test_scores_are_those_of_the_trained_networks(folder: Path, result: CompareResult) -> None:
    """The estimator that is scored and saved computes what the stacked network did on the test rows."""
    job = CompareJob.prepare(config(folder))
    assert result.verdict is not None
    with Store(folder / "out") as store:
        for (spec, split), final in finals(job, store).items():
            score = result.verdict.scores[spec][split - 1]
            assert score == pytest.approx(final.metrics["test_accuracy"], abs=1e-6)


def test_the_saved_model_reads_the_table_like_the_network(folder: Path, result: CompareResult) -> None:
    job = CompareJob.prepare(config(folder))
    assert result.model is not None
    model, table = boolit.load(result.model), pd.read_csv(folder / "table.csv")
    assert model.about_["activation"] in SPECS
    with Store(folder / "out") as store:
        results = finals(job, store)
        chosen = min((results[spec, 1] for spec in SPECS), key=lambda each: each.metrics["valid_loss"])
        estimator = scoring.network_estimator(chosen.config, job.table, load_file(store.weights(chosen.key)))
    features = job.table.features(np.arange(len(table)), job.table.resample(1))
    np.testing.assert_allclose(model.predict_proba(table), estimator.predict_proba(features), atol=1e-5)
    assert set(model.predict(table)) <= {"big", "small"}
    train = job.table.splitter.rows(1)["train"]  # gaps are filled with the median of the split's training rows
    imputer = model[0].transformer_.named_transformers_["numbers"]
    assert imputer.statistics_[0] == pytest.approx(table["size"][train].median(), rel=1e-5)


def test_the_same_command_trains_nothing_again(folder: Path, result: CompareResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StackedTraining, "step", lambda _: pytest.fail("trained again"))
    again = CompareJob.prepare(config(folder)).run(folder / "out", progress=False)
    assert (again.summary.trained, again.rates, again.verdict) == (0, result.rates, result.verdict)
    with pytest.raises(UserError, match=r"holds the comparison of 'class' of table.csv; choose another folder"):
        CompareJob.prepare(config(folder, "rare", "ill")).run(folder / "out", progress=False)


def test_numbers_are_predicted_in_their_own_unit(folder: Path, tmp_path: Path) -> None:
    result = CompareJob.prepare(config(folder, target="price")).run(tmp_path / "out", progress=False)
    assert result.verdict is not None
    assert result.model is not None
    assert result.verdict.metric.key == "test_rmse"
    table = pd.read_csv(folder / "table.csv")
    assert result.verdict.estimates["guessing"].mean == pytest.approx(table["price"].std(), rel=0.3)
    error = np.sqrt(np.mean((boolit.load(result.model).predict(table) - table["price"]) ** 2))
    assert error < table["price"].std()


def independent(name: str, estimator: Any, x: Any, y: Any) -> float:
    if name == "r2":
        return float(r2_score(y, estimator.predict(x)))
    chances = estimator.predict_proba(x)
    return float(roc_auc_score(y, chances[:, 1]) if name == "roc_auc" else log_loss(y, chances))


@pytest.mark.parametrize(
    ("target", "name", "goal"), [("class", "roc_auc", "max"), ("class", "neg_log_loss", "min"), ("price", "r2", "max")]
)
def test_any_scorer(target: str, name: str, goal: str, folder: Path) -> None:
    job = CompareJob.prepare(config(folder, target=target, metric=name))
    assert job.scorer.metric.goal == goal
    fitted = scoring.fit_baseline(scoring.BOOSTING, job.table, 2)
    rows = job.table.splitter.rows(2)["test"]
    x, y = job.table.features(rows, job.table.resample(2)), scoring.targets(job.table)[rows]
    assert job.scorer(fitted, 2) == pytest.approx(independent(name, fitted, x, y))


def test_a_rare_class_gets_a_metric_that_suits_it(folder: Path, tmp_path: Path) -> None:
    """7fbaaa9 said that nothing beats guessing, although the network had an AUC of 0.87."""
    job = CompareJob.prepare(config(folder, "rare", "ill", epochs=20))
    assert job.scorer.metric.name == "roc_auc"
    assert any("rare" in note for note in job.notes)
    result = job.run(tmp_path / "out", progress=False)
    assert result.verdict is not None
    assert result.verdict.learned == ["relu"]
    assert result.verdict.estimates["relu"].mean > 0.8


def test_balanced_classes_are_equally_frequent(folder: Path) -> None:
    table = CompareJob.prepare(config(folder, "rare", "ill", class_weight="balanced")).table
    sizes = set()
    for number in range(1, 6):
        rows = table.resample(number).rows
        sizes.add(tuple(map(len, rows.values())))
        assert float(table.y[rows["train"]].mean()) == pytest.approx(0.5, abs=0.01)
        assert set(rows["train"].tolist()) == set(table.splitter.rows(number)["train"])
    assert len(sizes) == 1
    with pytest.raises(UserError, match="needs classes"):
        CompareJob.prepare(config(folder, target="price", class_weight="balanced"))


def test_groups_stay_together_and_time_makes_no_claims(folder: Path, tmp_path: Path) -> None:
    table = pd.read_csv(folder / "table.csv")
    job = CompareJob.prepare(config(folder, groups="site"))
    for number in job.splits:
        sites = [set(table["site"][rows]) for rows in job.table.splitter.rows(number).values()]
        assert sum(map(len, sites)) == len(set.union(*sites))
    job = CompareJob.prepare(config(folder, time="since", activations=("relu", "max")))
    dates = pd.to_datetime(table["since"], format="%d/%m/%Y")
    rows = job.table.splitter.rows(1)
    assert dates[rows["train"]].max() < dates[rows["test"]].min()
    result = job.run(tmp_path / "out", progress=False)
    assert "significantly" not in str(result.verdict)
    assert "differ by their seed only" in str(result.verdict)


def test_what_is_said_before_training(folder: Path) -> None:
    job = CompareJob.prepare(config(folder, drop=("price",)))
    notes = "\n".join(job.notes)
    assert "'number' is not used: unique in every row, like an ID" in notes
    assert "'leak' alone predicts the target almost perfectly" in notes
    assert "'since' is read as dates written day/month/year" in notes
    assert "number" in CompareJob.prepare(config(folder, keep=("number",))).table.preparation.kinds_


def test_a_planted_difference_is_found(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 2))
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(site=np.arange(600) // 5, agree=x[:, 0] * x[:, 1] > 0)
    frame.to_csv(tmp_path / "signs.csv", index=False)
    options = CompareConfig(
        tmp_path / "signs.csv", "agree", metric="roc_auc", groups="site", activations=("relu", "xnor_ail"), budget=9, layers=1,
        splits=5, rates=(0.1,), epochs=40,
    )  # fmt: skip
    result = CompareJob.prepare(options).run(tmp_path / "out", progress=False)
    assert result.verdict is not None
    assert result.verdict.wins == {"xnor_ail": ["relu"]}


@pytest.mark.parametrize(("rows", "lengths"), [(100, (16, 100, 15)), (10_000, (128, 100, 15)), (320_000, (512, 8, 5))])
def test_recipe_by_rows(rows: int, lengths: tuple[int, ...]) -> None:
    assert tuple(recipe(rows)[name] for name in ("batch", "epochs", "patience")) == lengths


def test_a_class_may_be_missing_from_the_test_rows(folder: Path) -> None:
    """Balanced accuracy warns if a class is predicted that no test row has."""
    job = CompareJob.prepare(config(folder, target="color", metric="balanced_accuracy", drop=()))
    rows, boosting = job.table.splitter.rows(1), scoring.fit_baseline(scoring.BOOSTING, job.table, 1)
    classes = scoring.targets(job.table)[rows["test"]]
    for absent in set(classes):
        rest = {**rows, "test": rows["test"][classes != absent]}
        job.scorer.table = replace(job.table, splitter=SimpleNamespace(rows=lambda _, rest=rest: rest))
        assert 0 <= job.scorer(boosting, 1) <= 1


def test_tables_with_dots_in_their_names_have_their_own_folders(tmp_path: Path) -> None:
    """In 7fbaaa9 data.v1.csv and data.v2.csv shared a folder, and one model."""
    for name in ("data.v1.csv", "data.v2.csv.gz"):
        (tmp_path / name).touch()
    assert CompareConfig(tmp_path / "data.v1.csv").name == "data.v1"
    assert CompareConfig(tmp_path / "data.v2.csv.gz").name == "data.v2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": ("relu", "rellu")}, "unknown activation 'rellu'"),
        ({"activations": ("relu", "relu")}, "--activations relu,relu must name at least one, and none twice"),
        ({"budget": 5}, "--budget 5: the network of relu nearest to 5 has"),
        ({"target": "clas"}, "no column 'clas'; did you mean 'class'"),
        ({"rates": (0.1, -0.1)}, "--rates 0.1,-0.1 must be above 0"),
        ({"metric": "rocauc"}, "'rocauc' is not a valid scoring value"),
        ({"metric": "roc_auc", "target": "color"}, "--metric roc_auc cannot be computed"),
        ({"groups": "site", "time": "since"}, "exclude each other"),
        ({"groups": "member"}, "2 groups"),
        ({"time": "color"}, "neither dates nor numbers"),
        ({"target": "since"}, "holds dates"),
        ({"target": None}, "needs --target"),
        ({"path": Path("nothing.csv")}, "nothing.csv does not exist"),
    ],
)
def test_impossible_comparisons_are_one_line(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        CompareJob.prepare(replace(config(folder), **options))
    assert "\n" not in str(caught.value)


def test_diverged_trials_come_last() -> None:
    trials = pd.DataFrame({"activation": "relu", "split": [1, 1, 1, 2, 2], "learning_rate": [0.1, 0.01, 0.001, 0.1, 0.01]})
    trials["state"] = ["diverged", "finished", "finished", "diverged", "diverged"]
    assert choose_rates(trials.assign(valid_loss=[0.1, 0.7, 0.8, math.nan, 0.2])) == {("relu", 1): 0.01, ("relu", 2): 0.01}
    assert choose_rates(trials) == {("relu", 1): 0.001, ("relu", 2): 0.01}  # no run has measured anything


def test_minutes_reduce_the_epochs_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(seconds_per_epoch: float, **options: Any) -> tuple[CompareJob, int]:
        monkeypatch.setattr("boolit.lab.compare.runs.seconds_per_epoch", lambda *_: seconds_per_epoch)
        job = CompareJob.prepare(config(folder, "rare", "ill", **({"epochs": None, "minutes": 1} | options))).limit(tmp_path)
        return job, job.plan.study.training.epochs

    job, epochs = limited(0.5)
    fits, more = (0.5 * 5 * (2 * trial_epochs(number) + number) for number in (epochs, epochs + 1))  # 5 splits, 2 rates
    assert job.seconds == fits <= 60 < more
    assert limited(0.5, epochs=50)[1] == 50  # what the user has set stays
    assert limited(1e-9)[1] == 100
    job.run(tmp_path, progress=False)
    assert limited(1e-9)[1] == epochs  # the same command resumes, on a faster machine too
    assert limited(1e-9, minutes=2)[1] == 100
