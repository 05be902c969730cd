"""The rates of heads are found on validation pictures: no activation is compared at a rate where it diverges."""

from pathlib import Path
from typing import Literal

import pytest
import torch

from boolit.lab.common.random import generator
from boolit.lab.compare.images import (
    PROFILE,
    RATES,
    TRIAL_SEEDS,
    choose_rates,
    divergence_note,
    final_plan,
    recipe_for,
    trial_plan,
)
from boolit.lab.datasets import DATASETS, Dataset, Source, Split
from boolit.lab.execute import execute
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, RunConfig
from boolit.lab.studies import Plan, StudyFile, plan

GATES = ["relu", "xnor_nail"]
SEEDS = 3


class Features(Source):
    """Like an encoder's: 512 numbers that are not negative, of 5 classes, few samples."""

    name: Literal["test_features"] = "test_features"

    def load(self) -> Dataset:
        drawn = generator(0, "features")
        y = torch.arange(300) % 5
        x = 3 * (torch.randn(5, 512, generator=drawn)[y] + 2 * torch.randn(300, 512, generator=drawn)).relu()
        parts = {"train": slice(210), "valid": slice(210, 240), "test": slice(240, 300)}
        return Dataset({name: Split(x[part], y[part]) for name, part in parts.items()}, "classes", 5)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr(DATASETS, "registered", {**DATASETS.registered, "test_features": Features})
    tables = {
        "title": "Heads",
        "data": {"name": "test_features"},
        "model": {"name": "head", "sizes": "equal"},
        "sweep": {"activation": GATES, "width": [64], "depth": [2], "rounding": "nearest", "seeds": SEEDS},
        "training": {**recipe_for(210), "epochs": 8},
        "metric": {"name": "accuracy"},
        "profiles": {PROFILE: {}},
    }
    return plan(StudyFile("heads", Path("heads"), "", tables), PROFILE)


def trained(planned: Plan, store: Store) -> list[Record]:
    assert execute(planned, store, progress=False).complete
    keys = {run.key for run in planned.runs}
    return [record for record in store.records(history=False) if record.key in keys]


def test_no_head_diverges_at_its_chosen_rate(planned: Plan, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        tried = trained(trial_plan(planned), store)
        assert len(tried) == len(GATES) * len(RATES) * TRIAL_SEEDS
        assert not any(name.startswith("test") for record in tried for name in record.metrics)
        assert any(record.state == "diverged" for record in tried), "otherwise any rate would do here, and nothing is shown"
        rates = choose_rates(tried)
        finals = trained(final_plan(planned, rates), store)
    assert rates["xnor_nail"] < rates["relu"], "what suits one activation does not suit the other"
    assert len(finals) == len(GATES) * SEEDS
    assert {record.state for record in finals} == {"finished"}
    assert {record.config.training["learning_rate"] for record in finals} == set(rates.values())


def record(rate: float, loss: float, state: str = "finished") -> Record:
    config = RunConfig(activation="or_ail", training={"learning_rate": rate})
    return Record("", config, state, {"valid_loss": loss}, {}, {}, 0.0)


def test_the_lowest_mean_loss_without_a_divergence_is_chosen() -> None:
    tried = [record(0.01, 0.1), record(0.01, 0.1, "diverged"), record(0.003, 0.5), record(0.003, 0.3), record(0.001, 0.45)]
    assert choose_rates(tried) == {"or_ail": 0.003}
    assert choose_rates([record(rate, 1.0, "diverged") for rate in (0.01, 0.001)]) == {"or_ail": 0.001}


def test_what_diverged_is_told_with_what_to_do() -> None:
    assert divergence_note([record(0.01, 1.0)], 16) is None
    note = divergence_note([record(0.01, 1.0, "diverged"), record(0.01, 1.0)], 16)
    assert note == (
        "Diverged: or_ail in 1 of its runs (rate 0.01). A lower rate or larger batches are steadier: --rate 0.003 or --batch 32"
    )
