"""The studies of compositional learning are the paper's, and those on made data run."""

from pathlib import Path
from typing import Any

import pytest

from boolit.errors import UserError
from boolit.lab.execute import execute
from boolit.lab.paper import table, table_rows
from boolit.lab.results.store import Store
from boolit.lab.studies import load_study, plan

TINY = [
    "data.attributes=3",
    "data.objects=4",
    "data.listed=0.9",
    "data.samples=100",
    "data.features=6",
    "data.negatives=4",
    "model.attributes=3",
    "model.objects=4",
    "model.modules=2",
    "training.epochs=2",
]


@pytest.mark.parametrize("data", ["mitstates", "composed"])
@pytest.mark.parametrize(
    ("variant", "label", "recipe", "width"),
    [("tmn", "tab:tmn-og", (256, 1e-3, 5e-5, 10.0), 16), ("tmnx", "tab:tmnx", (128, 3e-3, 1e-5, 1.0), 64)],
)
def test_rows_and_recipe_are_the_papers(data: str, variant: str, label: str, recipe: tuple[Any, ...], width: int) -> None:
    study = load_study(f"{data}-{variant}").resolve("paper").study
    training, model = study.training, study.model.model_dump()
    assert study.sweep.activation == table_rows(label)
    assert study.paper == (label if data == "mitstates" else None)
    assert (training.batch, training.learning_rate, training.weight_decay, model["gater_rate"]) == recipe
    assert (training.optimiser, training.schedule, training.patience, training.patience_on) == ("adam", "constant", 5, "auc")
    assert (study.sweep.width, study.sweep.seeds, study.data.model_dump()["negatives"]) == ([width], 5, 600)
    assert (study.metric.key, study.metric.goal) == ("test_auc", "max")
    assert {cell.n for cell in table(label) if cell.activation in study.sweep.activation} == {5}


@pytest.mark.parametrize("name", ["composed-tmn", "composed-tmnx"])
def test_the_paper_sized_made_data_is_as_large_as_mit_states(name: str) -> None:
    planned = plan(load_study(name), "paper", seeds=1, sets=["sweep.activation=['relu']"])
    config = planned.runs[0].config
    assert (config.inputs, config.outputs) == ([512], 1962)
    assert config.parameters == (437_929 if name == "composed-tmn" else 1_148_713)


def test_a_study_runs_and_stores_the_extra_metrics(tmp_path: Path) -> None:
    planned = plan(load_study("composed-tmnx"), "quick", sets=[*TINY, "sweep.activation=['relu','or_ail']"], seeds=2)
    with Store(tmp_path) as store:
        execute(planned, store)
        records = store.records()
    assert len(records) == 4
    for record in records:
        assert record.state == "finished"
        assert 0 <= record.metrics["test_auc"] <= record.metrics["test_auc3"] <= 1
        assert len(record.history["valid_auc"]) == record.metrics["epochs"]
        best = int(record.metrics["best_epoch"]) - 1
        assert record.metrics["valid_auc"] == max(record.history["valid_auc"]) == record.history["valid_auc"][best]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("metric.name=auk", "metric.name is 'auk'; classes data has the metrics accuracy, auc, .*, harmonic and loss"),
        ("training.patience_on=auk", "training.patience_on is 'auk'; classes data has the metrics accuracy, auc"),
    ],
)
def test_a_metric_the_data_does_not_have_is_refused_before_training(change: str, rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        plan(load_study("composed-tmnx"), "quick", sets=[change])


def test_words_that_are_not_the_datas_are_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store, pytest.raises(UserError, match=r"'attributes.weight' has the shape \(4, 16\)"):
        execute(plan(load_study("composed-tmnx"), "quick", sets=[*TINY, "model.attributes=5"], seeds=1), store)
