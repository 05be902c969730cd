"""``boolit transfer`` on a folder of small pictures, from nothing to its report."""

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from boolit.cli._compare import compare
from boolit.cli._transfer import transfer
from boolit.errors import UserError
from boolit.lab.compare.config import CompareConfig, ImageCompareConfig
from boolit.lab.compare.images import RATES, TRIAL_SEEDS, image_study
from boolit.lab.models.resnet18 import Resnet18
from boolit.lab.results.store import Store

TRIALS = 3 * len(RATES) * TRIAL_SEEDS  # of three activations


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    torch.manual_seed(0)
    torch.save(Resnet18().state_dict(), tmp_path / "weights.pth")
    drawn = np.random.default_rng(0)
    for name, level in (("bright", 150), ("dark", 0)):
        (tmp_path / "My pictures" / name).mkdir(parents=True)
        for number in range(20):
            pixels = drawn.integers(0, 100, (16, 16, 3)) + level
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "My pictures" / name / f"{number}.png")
    return tmp_path


def answer(home: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    transfer(
        home / "My pictures",
        "identity,relu,or_ail",
        seeds=2,
        size=32,
        views=2,
        weights=home / "weights.pth",
        out=home / "out",
        json=True,
        **options,
    )
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_from_pictures_to_a_report(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = answer(home, capsys)
    assert first["summary"]["trained"] == 6 + TRIALS
    assert set(first["rates"]) == {"identity", "relu", "or_ail"}
    assert set(first["rates"].values()) <= set(RATES)
    assert first["notes"] == []
    assert "best" in first["verdict"]
    assert any(file.endswith("report.html") for file in first["files"])
    with Store(home / "out", create=False) as store:
        kept = [record for record in store.records() if not record.config.trial]
    assert {tuple(record.config.width) for record in kept} == {(), (512, 512), (650, 650)}
    linear = [record for record in kept if record.config.activation == "identity"]
    assert max(record.metrics["test_accuracy"] for record in linear) > 0.8
    again = answer(home, capsys)
    assert (again["summary"]["trained"], again["summary"]["already"]) == (0, 6 + TRIALS)


def test_rate_batch_and_epochs_are_options(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(home, capsys, rate=0.02, batch=14, epochs=3)
    assert found["summary"]["trained"] == 6
    with Store(home / "out", create=False) as store:
        trainings: list[Any] = [record.config.training for record in store.records()]
    assert {(own["learning_rate"], own["batch"], own["epochs"]) for own in trainings} == {(0.02, 14, 3)}


def test_the_command_says_what_validates_and_what_diverged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"seeds": 2, "size": 32, "views": 1, "weights": home / "weights.pth", "out": home / "out"}
    transfer(home / "My pictures", "max", rate=1e6, epochs=2, **options)
    told = capsys.readouterr()
    assert "4 pictures are for validation" in " ".join(told.err.split())
    assert "Diverged: max in 2 of its runs (rate 1e+06)" in told.out
    assert "--rate 3e+05 or --batch 14" in told.out


def test_mistakes_are_told_in_one_line(home: Path) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(UserError, match=match) as error:
            image_study(ImageCompareConfig(**{"folder": home / "My pictures", "weights": home / "weights.pth"} | options))
        assert "\n" not in str(error.value)

    refused("is no folder", folder=home / "nowhere")
    refused("the weights file", weights=home / "nothing.pth")
    refused("unknown activation 'rleu'", activations=("rleu",))
    refused("'relu' is there twice", activations=("relu", "relu"))
    refused("no activations to compare", activations=())
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        refused("is no learning rate; it must be above 0 and finite", rate=rate)


@pytest.mark.parametrize(("command", "config"), [(compare, CompareConfig), (transfer, ImageCompareConfig)])
def test_the_command_s_defaults_are_the_configuration_s(command: Callable[..., None], config: Any) -> None:
    defaults = {name: each.default for name, each in inspect.signature(command).parameters.items()}
    own = {field.name: field.default for field in fields(config) if field.default is not MISSING}
    own |= {"activations": ", ".join(config.activations)} | {name: None for name in ("drop", "rates") if name in own}
    assert {name: defaults[name] for name in own} == own


def test_the_study_is_called_after_the_folder() -> None:
    assert ImageCompareConfig(Path("a b/My pictures!")).name == "My-pictures"
