"""Sizes besides parameters: outputs, operations and the time of a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boolit.errors import UserError
from boolit.lab.datasets import describe
from boolit.lab.datasets.keel import SHAPES
from boolit.lab.models import family
from boolit.lab.studies import load, load_study, plan, save
from boolit.lab.studies.budgets import StepTimer, flops
from boolit.lab.studies.study import merge
from boolit.nn import activation

SETTLE = [(f"settle-{name}", ()) for name in ("covertype", "mnist", "fashion", "chorales", "cifar10-heads")]
SETTLE += [("settle-tables", (f"data.table={name}",)) for name in SHAPES if name != "splice"]
SETTLE += [("settle-tables", ("data.table=splice", "sweep.params=12000"))]
SOLVED = [f"hparams.{spec}.width=8" for spec in ("relu", "or_ail")]


@pytest.mark.parametrize(("name", "sets"), SETTLE)
def test_the_arms_of_the_registered_studies_meet_their_targets(name: str, sets: tuple[str, ...]) -> None:
    by_params = plan(load_study(name), "params", seeds=1, sets=sets)
    assert len(by_params.runs) == 14
    budget = by_params.study.sweep.params[0]
    assert all(abs(run.parameters / budget - 1) <= 0.03 for run in by_params.runs)
    by_outputs = plan(load_study(name), "outputs", seeds=1, sets=sets[:1])
    target = by_outputs.study.sweep.outputs[0]
    assert {activation(run.activation).out_features(width) for run in by_outputs.runs for width in run.widths} == {target}


def test_flops_of_a_convolutional_study() -> None:
    sets = ["sweep.flops=50_000_000", "model.structure=small", "sweep.activation=['relu', 'max', 'or_and_xnor_ail_d']"]
    planned = plan(load_study("mnist-cnn"), seeds=1, sets=sets)
    counts = [flops(run.model, run.inputs, run.outputs, run.widths, run.activation) for run in planned.runs]
    assert counts == pytest.approx([50_000_000] * 3, rel=0.05)


def test_flops_are_two_per_weight_of_a_perceptron() -> None:
    assert flops(family({"name": "mlp"}), (6,), 3, (4,), "relu") == 2 * (6 * 4 + 4 * 3)


def test_one_kind_of_size_replaces_another() -> None:
    assert merge({"params": 100, "step_time": 1.5}, {"outputs": 8}) == {"outputs": 8}
    assert merge({"outputs": 8}, {"params": 100, "step_time": 1.5}) == {"params": 100, "step_time": 1.5}
    assert merge({"params": 100, "step_time": 1.5}, {"params": 50}) == {"params": 50, "step_time": 1.5}
    with pytest.raises(UserError, match="give one of params, outputs, flops, width"):
        plan(load_study("xor"), sets=["sweep={activation=['relu'], seeds=1, params=100, outputs=8}"])


class _LinearTime(StepTimer):
    """Steps whose time is a known function of the width."""

    def ratio(self, spec: str, widths: list[int]) -> float:  # type: ignore[override]
        return (2.0 if spec == "max" else 1.0) * (20 + widths[0]) / 60


def test_the_solver_finds_the_width_for_a_step_time() -> None:
    study = plan(load_study("settle-covertype"), "params", seeds=1).study
    timer = _LinearTime(study.model, describe(study.data), study.training, 3000, 2)
    for spec, target in (("relu", 1.5), ("relu", 0.6), ("max", 1.5), ("tanh", 6.0)):
        width, multiple = timer.solve(spec, target)
        assert multiple == timer.ratio(spec, [width])
        assert multiple == pytest.approx(target, rel=0.04)
        assert width % activation(spec).width_multiple == 0
    with pytest.raises(UserError, match=r"a step of max takes at least 0\.73 times .* raise sweep.step_time"):
        timer.solve("max", 0.1)


def test_a_step_is_measured_without_the_data() -> None:
    study = plan(load_study("settle-covertype"), "params", seeds=1).study
    timer = StepTimer(study.model, describe(study.data), study.training, 3000, 2)
    assert 0 < timer.ratio("or_ail", [8, 8]) < float("inf")


def test_solved_widths_are_kept_so_that_a_plan_keeps_its_keys(tmp_path: Path) -> None:
    sets = ["sweep.activation=['relu', 'or_ail']", *SOLVED]
    planned = plan(load_study("settle-covertype"), "step-time", seeds=2, sets=sets)
    assert [run.widths for run in planned.runs] == [(8, 8)] * 4
    save(planned, tmp_path)
    assert [run.key for run in load(tmp_path).plan.runs] == [run.key for run in planned.runs]


def test_widths_that_are_not_given_are_solved_when_planning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(StepTimer, "ratio", _LinearTime.ratio)
    sets = ["sweep.activation=['relu', 'or_ail']", SOLVED[0]]
    planned = plan(load_study("settle-covertype"), "step-time", seeds=1, sets=sets)
    assert planned.runs[0].widths == (8, 8)
    assert planned.study.hparams["or_ail"]["width"] == pytest.approx(70, rel=0.1)
    save(planned, tmp_path)
    monkeypatch.setattr(StepTimer, "ratio", None)  # planning again measures nothing
    assert [run.key for run in load(tmp_path).plan.runs] == [run.key for run in planned.runs]
    assert "width" in json.loads((tmp_path / "study.json").read_text())["study"]["hparams"]["or_ail"]
