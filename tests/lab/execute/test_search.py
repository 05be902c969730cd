"""A search end to end, small."""

from pathlib import Path

import pytest

from boolit.errors import UserError
from boolit.lab.execute.search import SearchResult, SearchSettings, search, write_hparams
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study, plan
from boolit.lab.training import StackedTraining

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["data.train=128", "data.test=64", "training.epochs=3", "training.batch=32"]


def searched(folder: Path, sets: list[str] | None = None, rounds: int = 2) -> list[SearchResult]:
    with Store(folder) as store:
        how = SearchSettings(store, rounds=rounds, trials=12, seeds=3, finalists=4)
        found = search(load_study("xor"), how, ["xnor_nail"], sets=SMALL if sets is None else sets)
    assert found is not None
    return found


def test_a_search_tries_what_it_should_and_repeats_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = searched(tmp_path)
    assert found.activation == "xnor_nail"
    assert len(found.finalists) == 4
    assert [finalist.mean for finalist in found.finalists] == sorted((f.mean for f in found.finalists), reverse=True)
    with Store(tmp_path, create=False) as store:
        records = store.records()
    assert len(records) == 2 * 12 + 4 * 3
    assert {record.config.study for record in records} == {"xor-search"}
    monkeypatch.setattr(StackedTraining, "step", lambda _: pytest.fail("trained again"))
    assert searched(tmp_path) == [found]


def test_a_longer_search_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    searched(tmp_path / "a", rounds=1)
    assert searched(tmp_path / "a") == searched(tmp_path / "b")


def test_what_was_found_is_taken_by_a_study(tmp_path: Path) -> None:
    found = searched(tmp_path)
    write_hparams(found, "xor", tmp_path / "found.toml")
    recipe = load_study("xor").resolve("quick", hparams=tmp_path / "found.toml").study.recipe("xnor_nail")
    assert {name: getattr(recipe, name) for name in found[0].setting} == found[0].setting


def test_a_search_needs_one_size(tmp_path: Path) -> None:
    with Store(tmp_path) as store, pytest.raises(UserError, match="a search tunes one size"):
        search(load_study("parity8"), SearchSettings(store), ["relu"])


def test_less_is_better_for_an_error(tmp_path: Path) -> None:
    regression = [*SMALL, "data.name=parity8", "metric.name=rmse", "metric.solved=0.1"]
    (found,) = searched(tmp_path, regression, rounds=1)
    assert [finalist.mean for finalist in found.finalists] == sorted(finalist.mean for finalist in found.finalists)


@pytest.mark.parametrize("study", ["xor", "parity", "parity8"])
def test_neither_test_rows_nor_the_studys_seeds_choose(study: str, tmp_path: Path) -> None:
    file, sets = load_study(study), [*SMALL, "sweep.width=[8]"] if study == "parity8" else SMALL
    with Store(tmp_path) as store:
        found = search(file, SearchSettings(store, rounds=1, trials=6, seeds=2, finalists=2), ["relu"], sets=sets)
        records = store.records()
    assert found is not None
    metric = file.resolve("quick").study.metric
    means = {}
    for record in records:
        assert not any(name.startswith("test_") for name in record.metrics)
        if record.config.search == "final":
            values = means.setdefault(str(record.config.training), [])
            values.append(record.metrics[f"valid_{metric.name}"])
    assert {finalist.mean for finalist in found[0].finalists} == {sum(values) / 2 for values in means.values()}
    tried = {stage: {r.config.seed for r in records if r.config.search == stage} for stage in ("round 0", "final")}
    assert not tried["round 0"] & tried["final"]
    for profile in file.profiles:
        assert not set(file.resolve(profile).study.sweep.seed_list) & (tried["round 0"] | tried["final"])


def test_a_searched_run_is_no_run_of_the_study(tmp_path: Path) -> None:
    searched(tmp_path)
    with Store(tmp_path, create=False) as store:
        tables = [record.config.data for record in store.records()]
    own = plan(load_study("xor"), sets=SMALL).runs[0].config.data
    assert tables == [{"name": "holdout", "of": own}] * len(tables)


def test_data_with_validation_rows_of_its_own_is_chosen_by_these(tmp_path: Path) -> None:
    study = tmp_path / "own.toml"
    study.write_text(
        'title = "digits"\ndata = {name = "digits", validation = 0.822}\nmodel = {name = "mlp"}\nmetric = {name = "accuracy"}\n'
        'sweep = {activation = "relu", width = 8, seeds = 2}\ntraining = {epochs = 1, batch = 64}\n[profiles.quick]\n'
    )
    with Store(tmp_path / "store") as store:
        found = search(load_study(str(study)), SearchSettings(store, rounds=1, trials=5, seeds=2, finalists=2))
        (record, *_) = store.records()
    assert found is not None
    assert "1181 rows (the split valid)" in found[0].rows
    assert {name for name in record.metrics if name.endswith("accuracy")} == {"train_accuracy", "valid_accuracy"}


def test_rows_too_few_to_choose_by_are_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store, pytest.raises(UserError, match=r"0\.2 of 2 training rows of parity cannot be held out"):
        search(load_study("parity"), SearchSettings(store), ["relu"], sets=["data.train=2"])
