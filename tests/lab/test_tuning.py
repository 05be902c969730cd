"""A search end to end, small."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from boolit.lab.errors import UserError
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study
from boolit.lab.training import StackedTraining
from boolit.lab.tuning import Found, Search, search, write_hparams

SMALL = ["data.train=128", "data.test=64", "training.epochs=3", "training.batch=32"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def searched(folder: Path, sets: list[str] | None = None, rounds: int = 2) -> list[Found]:
    with Store(folder) as store:
        how = Search(store, rounds=rounds, trials=12, seeds=3, finalists=4)
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
    assert {record.config["study"] for record in records} == {"xor-search"}
    monkeypatch.setattr(StackedTraining, "step", lambda _: pytest.fail("trained again"))
    assert searched(tmp_path) == [found]


def test_a_longer_search_goes_on_from_a_shorter_one(tmp_path: Path) -> None:
    searched(tmp_path / "a", rounds=1)
    assert searched(tmp_path / "a") == searched(tmp_path / "b")


def test_what_was_found_is_taken_by_a_study(tmp_path: Path) -> None:
    found = searched(tmp_path)
    write_hparams(found, "xor", tmp_path / "found.toml")
    recipe = load_study("xor").resolved("quick", hparams=tmp_path / "found.toml").study.recipe("xnor_nail")
    assert {name: getattr(recipe, name) for name in found[0].setting} == found[0].setting


def test_a_search_needs_one_size(tmp_path: Path) -> None:
    with Store(tmp_path) as store, pytest.raises(UserError, match="a search tunes one size"):
        search(load_study("parity8"), Search(store), ["relu"])


def test_less_is_better_for_an_error(tmp_path: Path) -> None:
    regression = [*SMALL, "data.name=parity8", "metric.name=rmse", "metric.solved=0.1"]
    (found,) = searched(tmp_path, regression, rounds=1)
    assert [finalist.mean for finalist in found.finalists] == sorted(finalist.mean for finalist in found.finalists)
