"""Activations, datasets and models of files outside the package, those of the docs among them, by the command line."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from boolit.cli._app import run
from boolit.lab.common import plugins
from boolit.lab.results.store import Store

DOCS = Path(__file__).parents[3] / "docs"
TINY = """import torch
from boolit.nn import Custom, register

register("{name}", lambda dim: Custom(torch.sin, dim, name="{name}"))
"""


RING = """
from typing import Literal

import torch

from boolit.lab import Dataset, Source, Split, register_dataset


@register_dataset
class Ring(Source):
    name: Literal["ring"] = "ring"

    def load(self):
        x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
        y = (x.norm(dim=1, keepdim=True) > 1).float()
        return Dataset({"train": Split(x[:32], y[:32]), "test": Split(x[32:], y[32:])}, task="binary", outputs=1)
"""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What tests register in this process is forgotten."""
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.delenv("BOOLIT_PLUGINS", raising=False)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("boolit_plugin_", "of_a_module", "theirs_plugin")):
            del sys.modules[name]


def test_the_page_s_activation_dataset_and_study_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("".join(blocks("extend.md", "python")))
    (tmp_path / "mine.toml").write_text(blocks("extend.md", "toml")[0])
    few = ("--seeds", "2", "--set", "training.epochs=2", "--out", "out", "--json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    assert run(["--plugin", "mine.py", "run", "mine.toml", *few]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["trained"] == 6
    with Store(tmp_path / "out") as store:
        results = {result.config.activation: result for result in store.results()}
    plugin, built_in = results["soft_xnor"], results["xnor_ail"]
    assert plugin.config.widths == built_in.config.widths, "both are 2 → 1"
    assert plugin.state == "finished"
    loaded = plugin.environment["plugins"]
    assert isinstance(loaded, dict)
    assert list(loaded) == ["mine.py"]
    assert len(loaded["mine.py"]) == 16


def test_an_installed_package_s_plugin_and_the_variable_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "site" / "theirs-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[boolit.plugins]\ntheirs = theirs_plugin\n")
    (tmp_path / "site" / "theirs_plugin.py").write_text(TINY.format(name="theirs_sine"))
    (tmp_path / "one.py").write_text(TINY.format(name="one_sine"))
    (tmp_path / "two.py").write_text(TINY.format(name="two_sine"))
    both = os.pathsep.join(["one.py", str(tmp_path / "two.py")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOOLIT_PLUGINS", both)
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert run(["list", "--json"]) == 0
    assert {"theirs_sine", "one_sine", "two_sine"} <= {entry["spec"] for entry in json.loads(capsys.readouterr().out)}


def test_a_dataset_and_a_model_of_two_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ring.py").write_text(RING)
    (tmp_path / "of_a_module.py").write_text(blocks("studies.md", "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    study = blocks("extend.md", "toml")[0].replace('"checkers"\nfields = 4', '"ring"').replace('"mlp"', '"perceptron"')
    study = study.replace(', "soft_xnor"', "").replace("params = [1000]", "width = [4]").replace("depth = 2\n", "")
    (tmp_path / "own.toml").write_text(study)
    plugins = ["--plugin", str(tmp_path / "ring.py"), "--plugin", "of_a_module"]
    assert run([*plugins, "run", str(tmp_path / "own.toml"), "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["parameters"] for row in shown["runs"]] == [17, 15]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_the_kind\n", "line 1: ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("x = 1\nif x:\n", "line 2: IndentationError"),
        ("\nraise RuntimeError('no\\nluck')\n", "line 2: RuntimeError: no luck"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        (TINY.format(name="relu"), "'relu' is already an activation of boolit"),
        (RING.replace('"ring"', '"xor"'), "'xor' is already the name of a dataset of boolit"),
        (blocks("studies.md", "python")[0].replace('"perceptron"', '"mlp"'), "'mlp' is already the name of a model of boolit"),
    ],
)
def test_a_plugin_that_fails_is_one_line(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text(text)
    assert run(["--plugin", str(tmp_path / "bad.py"), "list"]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.count("\n") == 1
    assert f"the plugin {tmp_path / 'bad.py'} cannot be loaded: " in caught.err
    assert said in caught.err


@pytest.mark.parametrize("name", ["nowhere.py", "some/folder", "no_such_module", "empty_folder"])
def test_a_plugin_that_is_not_there_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["--plugin", name, "list"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: the plugin {name} cannot be loaded: ")
    assert message.endswith("or the name of a module\n")


def test_a_plugin_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(f"with open({str(tmp_path / 'count')!r}, 'a') as f:\n    f.write('x')\n")
    for _ in range(2):
        plugins.load_plugins([str(tmp_path / "count.py")])
    assert (tmp_path / "count").read_text() == "x"
