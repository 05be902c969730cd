"""Optimizers, schedules, losses, metrics and searches of one's own, and loggers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boolit.cli._app import run
from boolit.errors import UserError
from boolit.lab import Store, load_study, plan, register_loss, register_metric, register_optimizer, register_schedule, run_study
from boolit.lab.execute import loggers
from boolit.lab.runs import Result, RunConfig
from boolit.lab.studies.search import plan_search, search
from boolit.lab.training.recipe import OPTIMIZERS
from boolit.nn import Custom, register

ONE = ["sweep.activation=['relu']", "training.epochs=2"]


def metrics(folder: Path, *sets: str, **options: Any) -> list[float]:
    run_study("xor", folder, seeds=2, sets=[*ONE, *sets], progress=False, **options)
    return Store(folder).frame()["test_loss"].tolist()


def own_sgd(values: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: Tensor, hyper: Any, number: Tensor) -> None:
    state["velocity"].mul_(hyper["momentum"]).add_(gradient + hyper["weight_decay"] * values)
    values.sub_(rate * state["velocity"])
    assert float(number.max()) >= 1


def test_a_registered_optimizer_trains_stacked_runs_as_torch_does(tmp_path: Path) -> None:
    register_optimizer("velocity")(own_sgd)
    same = ("training.momentum=0.9", "training.weight_decay=0.01", "training.learning_rate=0.1")
    own = metrics(tmp_path / "own", "training.optimizer=own_sgd", *same)
    assert own == pytest.approx(metrics(tmp_path / "torch", "training.optimizer=sgd", *same), rel=1e-5)


def test_a_registered_optimizer_trains_plain_networks_as_torch_does() -> None:
    register_optimizer("velocity")(own_sgd)
    hyper = {"momentum": 0.9, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    values = {}
    for name in ("own_sgd", "sgd"):
        parameters = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.tensor(2.0))]
        optimizer = OPTIMIZERS.get(name).plain([{"params": parameters, "weight_decay": 0.1}], hyper, False)
        for _ in range(3):
            optimizer.zero_grad()
            (parameters[0].square().sum() * parameters[1]).backward()
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            optimizer.step()
        values[name] = [parameter.detach() for parameter in parameters]
    torch.testing.assert_close(values["own_sgd"], values["sgd"])


def test_options_of_an_optimizer_change_the_result_and_the_key(tmp_path: Path) -> None:
    @register_optimizer(strength=1.0)
    def strong(values: Tensor, gradient: Tensor, _state: Any, rate: Tensor, hyper: Any, _number: Tensor) -> None:
        values.sub_(rate * hyper["strength"] * gradient)

    base = ("training.optimizer=strong", "training.learning_rate=0.1")
    first = metrics(tmp_path, *base)
    assert metrics(tmp_path / "b", *base, "training.options.strength=0.5") != first
    with pytest.raises(UserError, match="'weight' is not an option of strong; it has strength"):
        plan(load_study("xor"), sets=["training.optimizer=strong", "training.options.weight=1.0"])
    for state, options in (((), {"beta1": 0.5}), (("step",), {})):
        with pytest.raises(ValueError, match="is a name that every optimizer has"):
            register_optimizer(*state, **options)


def test_schedules_and_losses(tmp_path: Path) -> None:
    @register_schedule
    def still(steps: Tensor, _total: int, highest: Tensor, _peak: Tensor) -> Tensor:
        return highest + 0 * steps

    @register_loss("binary")
    def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-outputs * (2 * targets - 1))

    own = metrics(tmp_path / "own", "training.schedule=still", "training.loss=logistic")
    assert own == pytest.approx(metrics(tmp_path / "built-in", "training.schedule=constant"), rel=1e-4)
    with pytest.raises(UserError, match="unknown schedule 'stil'; choose still"):
        plan(load_study("xor"), sets=["training.schedule=stil"])
    with pytest.raises(UserError, match="'cross-entropy' does not fit binary data"):
        plan(load_study("xor"), sets=["training.loss='cross-entropy'"])


def test_a_metric_is_measured_compared_and_part_of_the_key(tmp_path: Path) -> None:
    @register_metric("max", "binary", percent=True)
    def hits(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs > 0) == (targets > 0.5)).double().mean((1, 2))

    before = plan(load_study("xor"), seeds=1).runs[0].key
    report = run_study("xor", tmp_path, seeds=2, sets=[*ONE, "metric.name=hits"], progress=False)
    frame = Store(tmp_path).frame()
    assert frame["test_hits"].tolist() == pytest.approx(frame["test_accuracy"].tolist())
    assert "test hits (%)" in report.tables[0].text
    assert before not in set(frame["key"])
    assert plan(load_study("xor"), seeds=1).runs[0].key == before


def test_a_metric_of_a_wrong_shape_is_one_line(tmp_path: Path) -> None:
    @register_metric("min")
    def wrong(outputs: Tensor, _targets: Tensor) -> Tensor:
        return outputs.mean(1)

    with pytest.raises(UserError, match=r"the metric 'wrong' returned values of shape \(2, 1\) instead of one value per run"):
        run_study("xor", tmp_path, seeds=2, sets=[*ONE, "metric.name=wrong"], progress=False)


def test_an_activation_with_a_scalar_parameter_trains_stacked(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * torch.relu(x)

    register("scaled_relu", lambda dim: Custom(Scaled(), dim, name="scaled_relu"))
    run_study("xor", tmp_path, seeds=3, sets=[*ONE, "sweep.activation=['scaled_relu']", "keep_weights=true"], progress=False)
    assert Store(tmp_path).frame()["state"].tolist() == ["finished"] * 3


def study_file(folder: Path, bounds: str) -> Path:
    path = folder / "own.toml"
    path.write_text(
        'title = "x"\n[data]\nname = "xor"\n[model]\nname = "mlp"\n[sweep]\nactivation = ["or_ail"]\nwidth = [8]\nseeds = 1\n'
        f'[training]\nepochs = 1\nbatch = 8\n[metric]\nname = "accuracy"\n[search]\n{bounds}\n'
    )
    return path


def test_search_bounds_of_a_study(tmp_path: Path) -> None:
    tried: list[RunConfig] = []

    def train(configs: Sequence[RunConfig]) -> list[Result]:
        tried.extend(configs)
        return [Result(run, "finished", {"valid_accuracy": 1 / run.training.batch}) for run in configs]

    bounds = "learning_rate = [0.01, 0.02]\nbatch = [4, 32]\nwidth = [6, 20]\ndropout = [0.1, 0.4]"
    planned = plan_search(load_study(study_file(tmp_path, bounds)))
    assert search(planned, train, rounds=3, trials=10, seeds=2, finalists=2) is not None
    assert all(0.01 <= run.training.learning_rate <= 0.02 and 4 <= run.training.batch <= 32 for run in tried)
    assert all(6 <= run.widths[0] <= 20 and run.widths[0] % 2 == 0 and 0.1 <= run.model.dropout <= 0.4 for run in tried)
    assert len({run.widths for run in tried}) > 2
    assert len({run.training.batch for run in tried}) > 5
    assert {run.training.beta1 for run in tried} == {0.9}
    assert all(run.parameters == 7 * run.widths[0] // 2 + 1 for run in tried)


@pytest.mark.parametrize(
    ("bounds", "rule"),
    [
        ("depth = [1, 2]", "search.depth is not a hyper-parameter of this study; choose among beta1"),
        ("learning_rate = [0.0, 0.1]", r"search.learning_rate is \[0, 0.1\]; it must be \[low, high\] with 1e-30 ≤ low < high"),
        ("beta2 = [0.9, 1.0]", "0 ≤ low < high ≤ 0.9999999"),
        ("dropout = [0.5, 0.1]", "low < high"),
        ("dropout = [0.5, 1.5]", "0 ≤ low < high ≤ 0.99"),
    ],
)
def test_bad_search_bounds(tmp_path: Path, bounds: str, rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        plan_search(load_study(study_file(tmp_path, bounds)))


def test_hparams_set_width_and_options_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "hparams.toml"
    file.write_text('[hparams."or_ail"]\nwidth = 12\ndropout = 0.25\nbatch = 16\n')
    (run,) = plan(load_study(study_file(tmp_path, "")), hparams=file).runs
    assert (run.widths, run.model.dropout, run.training.batch) == ((12,), 0.25, 16)


def test_every_epoch_of_every_run_is_reported(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float]] = []
    metrics(tmp_path, on_epoch=lambda run, epoch, values: seen.append((run.seed, epoch, values["test_loss"])), log=["csv"])
    assert [entry[:2] for entry in seen] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert [value for _, epoch, value in seen if epoch == 2] == Store(tmp_path).frame()["test_loss"].tolist()
    files = sorted((tmp_path / "logs" / "csv").iterdir())
    assert len(files) == 2
    assert [line.split(",")[0] for line in files[0].read_text().splitlines()] == ["epoch", "1", "2"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=f"--log {name} needs the package {name} .*: pip install {name}$"):
        loggers.open_logger(name, tmp_path)
    with pytest.raises(UserError, match="--log x is not a logger; choose among tensorboard, wandb, mlflow, csv"):
        loggers.open_logger("x", tmp_path)
    assert run(["run", "xor", "--seeds", "1", "--log", name, "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_wandb_and_mlflow_have_a_run_per_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    class Wandb:
        def log(self, values: dict[str, float], step: int) -> None:
            calls.append(("log", id(self), step, *values))

        def finish(self) -> None:
            calls.append(("finish", id(self)))

    class Mlflow:
        def __init__(self, uri: str) -> None:
            assert uri == (tmp_path / "logs" / "mlflow").as_uri()

        def get_experiment_by_name(self, name: str) -> None:
            assert name == "xor"

        def create_experiment(self, _name: str) -> str:
            return "1"

        def create_run(self, _experiment: str, run_name: str) -> Any:
            return SimpleNamespace(info=SimpleNamespace(run_id=run_name))

        def log_param(self, run: str, key: str, value: object) -> None:
            calls.append(("param", run, key, value))

        def log_metric(self, run: str, key: str, _value: float, step: int) -> None:
            calls.append(("metric", run, key, step))

        def set_terminated(self, run: str) -> None:
            calls.append(("terminated", run))

    modules = {name: ModuleType(name) for name in ("wandb", "mlflow")}
    modules["wandb"].init = lambda **_: Wandb()  # type: ignore[attr-defined]
    modules["mlflow"].MlflowClient = Mlflow  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    metrics(tmp_path, log=["wandb", "mlflow"])
    kinds = [call[0] for call in calls]
    assert (kinds.count("log"), kinds.count("finish"), kinds.count("terminated")) == (4, 2, 2)
    assert len({call[1] for call in calls if call[0] == "metric" and call[2:] == ("test_loss", 2)}) == 2


@pytest.mark.check
def test_tensorboard_has_a_run_per_seed(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    losses = metrics(tmp_path, log=["tensorboard"])
    logged = []
    for folder in sorted((tmp_path / "logs" / "tensorboard").iterdir(), key=lambda path: path.name.split("seed")[1]):
        events = EventAccumulator(str(folder))
        events.Reload()
        assert [event.step for event in events.Scalars("test_loss")] == [1, 2]
        logged.append(events.Scalars("test_loss")[-1].value)
    assert logged == pytest.approx(losses)
