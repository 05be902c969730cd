"""Loading a study: overrides, and errors that name the file, the key and the rule."""

import copy
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.studies import StudyFile, load, load_study, plan, save

Write = Callable[..., Path]

MISTAKES = [
    (("epochs = 2", "epoch = 2"), "training.epoch: is not a known key; did you mean epochs?"),
    (("epochs = 2", "epochs = 0"), "training.epochs: it should be greater than or equal to 1, not 0"),
    (("epochs = 2", 'epochs = "two"'), "training.epochs: it should be a valid integer, not 'two'"),
    (("epochs = 2\n", ""), "training.epochs: is missing"),
    (('"relu"', '"rleu"'), "sweep.activation: unknown activation 'rleu'; did you mean relu"),
    (('"relu"', '"xnor_ail"'), "sweep.activation: 'xnor_ail' is listed twice"),
    (('name = "parity"', 'name = "partiy"'), "data: unknown dataset 'partiy'; choose parity"),
    (("train = 64", "trane = 64"), "data.trane: is not a known key; did you mean train?"),
    (('name = "mlp"', 'name = "mpl"'), "model: unknown model 'mpl'; choose mlp"),
    (('name = "mlp"', 'name = "mlp"\nnormalizaton = "batch"'), "model.normalizaton: is not a known key; did you mean normal"),
    (("seeds = 3", "seeds = 3\nparams = [40]"), "sweep: give one of params"),
    (("seeds = 3", "seeds = 3\ndepth = 2"), "sweep: depth follows from a list of widths"),
    (("learning_rate = 0.01", "learning_rate = -1.0"), "training.learning_rate: "),
    (("batch = 32", 'batch = 32\naugmentation = "blur"'), "training.augmentation: unknown augmentation 'blur'"),
    (("learning_rate = 0.02", "learning_rat = 0.02"), "hparams.xnor_ail.learning_rat: is not a known key; did you mean"),
    (("learning_rate = 0.02", "beta1 = 2.0"), "hparams.xnor_ail.beta1: it should be less than 1, not 2.0"),
    (("epochs = 1", "epochs = 1.5"), "profiles.quick: training.epochs: "),
    (('title = "A small study"', ""), "title: is missing"),
    (("[metric]", "[metrics]"), "metrics: is not a known key; did you mean metric?"),
    (
        ('[metric]\nname = "accuracy"', '[metric]\nname = "acuracy"'),
        "metric: 'acuracy' is not a known metric and needs goal and percent; did you mean accuracy?",
    ),
    (
        ('[metric]\nname = "accuracy"', '[metric]\nname = "mae"'),
        "metric: 'mae' is not a known metric and needs goal and percent",
    ),
]


@pytest.mark.parametrize(("change", "rule"), MISTAKES, ids=[rule[:40] for _, rule in MISTAKES])
def test_a_mistake_names_file_key_and_rule(write: Write, change: tuple[str, str], rule: str) -> None:
    path = write(change)
    with pytest.raises(UserError) as caught:
        load_study(path)
    assert str(caught.value).startswith(f"{path}: {rule}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("[[4, 2]]", "[[4, 3]]"), "sweep.width: xnor_ail needs a multiple of 2 channels, got 3"),
        (('name = "accuracy"', 'name = "rmse"'), "metric.name: 'rmse' is not a metric of binary data"),
        (('name = "accuracy"', 'name = "accuracy"\nsplit = "dev"'), "metric.split: 'dev' is not a split of the data"),
        (("batch = 32", 'batch = 32\nloss = "cross-entropy"'), "training.loss: 'cross-entropy' does not fit binary data"),
        (("batch = 32", "batch = 32\npatience = 2"), "training.patience: needs data with a split valid"),
        (("width = [[4, 2]]", "params = 3"), "sweep.params: the network of relu nearest to 3 has 7 parameters"),
    ],
)
def test_mistakes_that_only_the_data_shows(write: Write, change: tuple[str, str], rule: str) -> None:
    path = write(change)
    with pytest.raises(UserError) as caught:
        plan(load_study(path))
    assert str(caught.value).startswith(f"{path}: {rule}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training.epoch=3", "--set training.epoch=3: training.epoch: is not a known key; did you mean epochs?"),
        ("training.epochs", "--set training.epochs: write key=value"),
        ("training.epochs=", "write key=value"),
        ("sweep.activation=[relu]", "the value is not TOML"),
        ("sweep.width=[3]", "--set sweep.width=[3]: sweep.width: xnor_ail needs a multiple of 2"),
    ],
)
def test_a_wrong_override_names_itself(write: Write, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(load_study(write()), sets=[text])
    assert message in str(caught.value)


def test_overrides_apply_in_order(write: Write, tmp_path: Path) -> None:
    file, found = load_study(write()), tmp_path / "found.toml"
    found.write_text("[hparams.relu]\nbeta1 = 0.8\n")
    assert file.resolve()[0].training.epochs == 2
    assert file.resolve("quick")[0].training.epochs == 1
    study, _ = file.resolve("quick", 7, ["training.epochs=5", "data.name=xor", "training.epochs=6"], found)
    assert (study.training.epochs, study.data.name, study.sweep.seed_list) == (6, "xor", list(range(7)))
    assert (study.tuned("relu").training.beta1, study.tuned("xnor_ail").training.learning_rate) == (0.8, 0.02)
    assert file.resolve("paper")[0].sweep.width is None  # params replace width
    assert file.resolve("paper", sets=["sweep.width=8"])[0].sweep.width == [8]


@pytest.mark.parametrize("content", ["title = A", "\xff\xfe", "[profiles]\nquick = 1", None])
def test_files_that_are_not_studies(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"wrong\.toml"):
        load_study(path)


def test_unknown_studies_and_profiles_list_the_known_ones(write: Write) -> None:
    with pytest.raises(UserError, match=r"there is no study 'partiy'; give a .toml file or one of parity"):
        load_study("partiy")
    with pytest.raises(UserError, match="small has no profile 'slow'; it has quick, paper"):
        plan(load_study(write()), "slow")
    without = load_study(write(("[profiles.quick.training]\nepochs = 1\n", "")))
    assert (plan(without).profile, plan(without).study.training.epochs) == (None, 2)


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_a_saved_study_gives_the_same_plan(write: Write, profile: str, tmp_path: Path) -> None:
    planned = plan(load_study(write()), profile, sets=["metric.solved=0.9"])
    save(planned, tmp_path, "study", "boolit run small.toml", extra=[1])
    saved = load(tmp_path)
    assert (saved.kind, saved.command, saved.more) == ("study", "boolit run small.toml", {"extra": [1]})
    assert saved.plan == planned
    assert [run.key for run in saved.plan.runs] == [run.key for run in planned.runs]
    (tmp_path / "study.json").write_text('{"kind": 1}')
    with pytest.raises(UserError, match=r"study\.json cannot be read"):
        load(tmp_path)
    with pytest.raises(UserError, match="it is not a results folder"):
        load(tmp_path / "empty")


PARITY = load_study("parity")
TABLES = {
    "data": "name train test seed of path",
    "model": "name dropout normalization",
    "sweep": "activation seeds params width depth rounding",
    "training": "optimizer learning_rate schedule epochs batch beta1 peak loss patience augmentation",
    "metric": "name split solved goal",
    "hparams": "relu relu.learning_rate",
}
KEYS = [*TABLES, "title", "x.y", *(f"{table}.{name}" for table, names in TABLES.items() for name in names.split())]
ODD = [0, -1, 2, 10**20, True, 0.5, 1e308, float("nan"), "", "find", "xor", "cnn", "valid", "a\0b", "\udcff", [], [[]], {}]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(ODD) | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=3), st.text(max_size=12))
def test_any_table_and_any_set_is_planned_or_refused(changes: list[tuple[str, Any]], text: str) -> None:
    tables = copy.deepcopy(dict(PARITY.tables))
    for key, value in changes:
        *path, last = key.split(".")
        table = tables
        for part in path:
            inner = table.get(part)
            table[part] = table = inner if isinstance(inner, dict) else {}
        table[last] = value
    for sets in ([], [text], [f"{changes[0][0]}={text}"]):
        with suppress(UserError):
            plan(StudyFile("fuzz", PARITY.path, tables), seeds=1, sets=sets)


@pytest.mark.usefixtures("_offline")
def test_all_shipped_studies_plan_in_every_profile_without_data() -> None:
    for path in sorted(PARITY.path.parent.glob("*.toml")):
        file = load_study(path.stem)
        assert {"params", "outputs", "step-time"} <= set(file.profiles) or {"quick", "paper"} <= set(file.profiles)
        for profile in file.profiles:
            assert plan(file, profile).runs


@pytest.fixture
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("planning used the network")

    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("boolit.lab.studies.planner.bytes_per_run", lambda *_: 1)  # measured by the other tests
    monkeypatch.setattr("boolit.lab.studies.planner.StepTimer.solve", lambda *_: (8, 1.5))  # measured by the other tests
