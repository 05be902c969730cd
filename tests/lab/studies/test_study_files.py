"""A mistake in a study is one line that names the file, the line and the rule."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from boolit.cli._app import run as run_command
from boolit.errors import UserError
from boolit.lab.studies import list_studies, load_study, plan

Write = Callable[..., Path]


def number(path: Path, line: str) -> int:
    """The number of a line by its text; an empty text is the file as a whole."""
    return path.read_text().splitlines().index(line) + 1 if line else 1


MISTAKES = [
    (("epochs = 2", "epoch = 2"), "epoch = 2", "training.epoch is no known key; did you mean epochs?"),
    (("epochs = 2", "epochs = 0"), "epochs = 0", "training.epochs is 0; it should be greater than or equal to 1"),
    (("epochs = 2", 'epochs = "two"'), 'epochs = "two"', "training.epochs is 'two'; it should be a valid integer"),
    (("epochs = 2\n", ""), "[training]", "training.epochs is missing; add it"),
    (('"relu"', '"rleu"'), "activation = [", "sweep.activation.0: unknown activation 'rleu'; did you mean relu"),
    (('"relu"', '"xnor_ail"'), "activation = [", "sweep.activation: 'xnor_ail' is there twice"),
    (('name = "parity"', 'name = "partiy"'), "[data]", "data: unknown dataset 'partiy'; choose parity"),
    (("train = 64", "trane = 64"), "trane = 64", "data.trane is no known key; did you mean train?"),
    (("train = 64", "train = -1"), "train = -1", "data.train is -1"),
    (('name = "mlp"', 'name = "mpl"'), "[model]", "model: unknown model 'mpl'; choose mlp"),
    (("seeds = 3", "seeds = 0"), "seeds = 0", "sweep.seeds is 0"),
    (("seeds = 3", "seeds = 3\nparams = [40]"), "[sweep]", "sweep: give either params"),
    (("seeds = 3", "seeds = 3\ndepth = 2"), "[sweep]", "sweep: depth follows from a list of widths"),
    (("learning_rate = 0.01", 'learning_rate = "fnid"'), 'learning_rate = "fnid"', "training.learning_rate is 'fnid'"),
    (
        ("learning_rate = 0.01", "learning_rate = -1.0"),
        "learning_rate = -1.0",
        "training.learning_rate: -1.0 is no learning rate; it must be above 0",
    ),
    (("batch = 32", "batch = 32\nwarmup = 1.0"), "[training]", "training: warmup and one-cycle exclude each other"),
    (
        ("batch = 32", 'batch = 32\naugmentation = "blur"'),
        'augmentation = "blur"',
        "training.augmentation: unknown augmentation 'blur'",
    ),
    (
        ("learning_rate = 0.02", "learning_rat = 0.02"),
        "learning_rat = 0.02",
        "hparams.xnor_ail.learning_rat is no known key; did you mean learning_rate?",
    ),
    (("learning_rate = 0.02", "beta1 = 2.0"), "beta1 = 2.0", "hparams.xnor_ail.beta1 is 2.0; it should be less than 1"),
    (("[hparams.xnor_ail]", "[hparams.xnor_aol]"), "[hparams.xnor_aol]", "unknown activation 'xnor_aol'"),
    (("epochs = 1", "epochs = 1.5"), "epochs = 1.5", "training.epochs is 1.5"),
    (('title = "A small study"', ""), "", "title is missing; add it"),
    (('[metric]\nname = "accuracy"', ""), "", "metric is missing; add it"),
    (("[metric]", "[metrics]"), "[metrics]", "metrics is no known key; did you mean metric?"),
]


@pytest.mark.parametrize(("change", "line", "rule"), MISTAKES, ids=[rule[:40] for _, _, rule in MISTAKES])
def test_a_mistake_names_file_line_and_rule(write: Write, change: tuple[str, str], line: str, rule: str) -> None:
    path = write(change)
    with pytest.raises(UserError) as caught:
        load_study(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{number(path, line)}: ")
    assert rule in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "line", "rule"),
    [
        (
            ("[[4, 2]]", "[[4, 3]]"),
            "width = [[4, 3]]",
            "sweep.width: xnor_ail needs a multiple of 2 channels, got 3; use 2 or 4",
        ),
        (
            ('name = "accuracy"', 'name = "rmse"'),
            'name = "rmse"',
            "metric.name is 'rmse'; binary data has the metrics accuracy and loss",
        ),
        (
            ('name = "accuracy"', 'name = "acuracy"'),
            'name = "acuracy"',
            "metric.name is 'acuracy'; binary data has the metrics accuracy and loss",
        ),
        (
            ('name = "accuracy"', 'name = "accuracy"\nsplit = "dev"'),
            'split = "dev"',
            "metric.split is 'dev'; the data has train, test",
        ),
        (
            ("batch = 32", 'batch = 32\nloss = "cross-entropy"'),
            'loss = "cross-entropy"',
            "which binary data cannot have; use 'bce'",
        ),
    ],
)
def test_what_only_the_data_can_tell_is_told_as_well(write: Write, change: tuple[str, str], line: str, rule: str) -> None:
    path = write(change)
    with pytest.raises(UserError) as caught:
        plan(load_study(path))
    assert str(caught.value).startswith(f"{path}:{number(path, line)}: ")
    assert rule in str(caught.value)


def test_an_impossible_budget_says_what_is_possible(write: Write) -> None:
    study = load_study(write(("params = [40, 80]", "params = [3]")))
    with pytest.raises(
        UserError, match=r"small.toml:33: sweep.params is 3, but the nearest network with relu has 7 parameters"
    ):
        plan(study, "paper")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("training.epoch=3", "--set training.epoch=3: training.epoch is no known key; did you mean epochs?"),
        ("training.epochs=0", "--set training.epochs=0: training.epochs is 0"),
        ("training.epochs", "write key=value"),
        ("training.epochs=", "is no TOML value"),
        ("sweep.activation=[relu]", "is no TOML value"),
        ("sweep.width=[3]", "--set sweep.width=[3]: sweep.width: xnor_ail needs a multiple of 2"),
        ("sweep.activation=['nor_iil']", "--set sweep.activation=['nor_iil']: sweep.activation.0: unknown activation"),
    ],
)
def test_a_wrong_override_names_itself(write: Write, given: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(load_study(write()), sets=[given])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_overrides_are_applied_in_order(write: Write) -> None:
    file = load_study(write())
    assert file.resolve().study.training.epochs == 2
    assert file.resolve("quick").study.training.epochs == 1
    study = file.resolve("quick", 7, ["training.epochs=5", "data.name=xor", "training.epochs=6", "data.train=80"]).study
    assert study.training.epochs == 6
    assert study.data.name == "xor"
    assert study.sweep.seed_list == list(range(7))


def test_a_size_replaces_the_other_kind_of_size(write: Write) -> None:
    file = load_study(write())
    assert file.resolve("paper").study.sweep.width is None
    assert file.resolve("paper", sets=["sweep.width=8"]).study.sweep.width == [8]


def test_a_file_of_hyper_parameters_is_laid_over_the_study(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "found.toml"
    path.write_text("[hparams.relu]\nbeta1 = 0.8\n")
    study = load_study(write()).resolve("quick", hparams=path).study
    assert study.recipe("relu").beta1 == 0.8
    assert study.recipe("relu").learning_rate == 0.01
    assert study.recipe("xnor_ail").learning_rate == 0.02
    path.write_text("[hparams.relu]\n\nbeta = 0.8\n")
    with pytest.raises(UserError, match=r"found.toml:3: hparams.relu.beta is no known key"):
        load_study(write()).resolve("quick", hparams=path)


def test_files_that_are_no_study(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no study 'partiy'; give a .toml file, or one of parity"):
        load_study("partiy")
    with pytest.raises(UserError, match="there is no file"):
        load_study(tmp_path / "none.toml")
    with pytest.raises(UserError, match=r"small.toml:1: not TOML"):
        load_study(write(('title = "A', "title = A")))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read as text"):
        load_study(binary)
    with pytest.raises(UserError, match="cannot be read as text"):
        load_study(tmp_path)
    with pytest.raises(UserError, match=r"small.toml:29: profiles is a table of tables"):
        load_study(write(("[profiles.quick.training]\nepochs = 1", "[profiles]\nquick = 1"), ("[profiles.paper.sweep]", "[x]")))


def test_an_unknown_profile_lists_those_there_are(write: Write) -> None:
    with pytest.raises(UserError, match="the study small has no profile 'slow'; it has quick, paper"):
        plan(load_study(write()), "slow")


@pytest.mark.parametrize(
    ("removed", "left"),
    [
        (["[profiles.quick.training]\nepochs = 1\n"], "paper"),
        (["[profiles.quick.training]\nepochs = 1\n", "[profiles.paper.sweep]\nparams = [40, 80]\ndepth = [1, 2]\n"], "none"),
    ],
)
def test_a_study_without_the_default_profile_runs_as_it_stands(write: Write, removed: list[str], left: str) -> None:
    file = load_study(write(*((text, "") for text in removed)))
    planned = plan(file)
    assert (planned.profile, planned.study.training.epochs) == (None, 2)
    with pytest.raises(UserError, match=f"the study small has no profile 'quick'; it has {left}"):
        plan(file, "quick")


@pytest.fixture
def _nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty data folder, and no network: whatever is asked for by name is refused."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("planning asked the network")

    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("_nothing_here")
def test_all_shipped_studies_are_shown_in_every_profile_without_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    studies = {study.name: study for study in list_studies()}
    assert {
        "chorales",
        "covertype-1",
        "covertype-2",
        "covertype-3",
        "mnist-cnn",
        "mnist-mlp",
        "parity",
        "parity8",
        "transfer-cars",
        "transfer-cifar10",
        "xor",
    } <= set(studies)
    for study in studies.values():
        assert study.title
        assert {"quick", "paper"} <= set(study.profiles)
        for profile in study.profiles:
            assert run_command(["show", study.name, "--profile", profile, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["runs"]
    assert not (tmp_path / "nothing").exists()
