"""Saved models: equal predictions in another process without the lab, and refusal of damaged and forged files."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

import boolit
from boolit.errors import UserError
from boolit.sklearn import LogicalMLPClassifier, LogicalMLPRegressor
from boolit.tables import TablePreparation, save
from boolit.tables.model import write_predictions

COLUMNS = ["size", "color", "member", "since"]


def fit(frame: pd.DataFrame, target: str, **options: Any) -> Pipeline:
    kind = LogicalMLPRegressor if target == "price" else LogicalMLPClassifier
    network = kind("or_ail+prelu_d", max_iter=2, random_state=0, **options)
    y = frame[target].astype(float) if target == "price" else frame[target]
    model = Pipeline([("preparation", TablePreparation()), ("network", network)]).fit(frame[COLUMNS], y)
    model.about_ = {"target": target}
    return model


@pytest.fixture(scope="module")
def saved(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.skops"
    save(fit(frame, "class"), path)
    return path


FRESH = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[:2] == ["boolit", "lab"] or name in ("pydantic", "typer", "rich", "safetensors", "matplotlib"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import numpy as np, boolit
from boolit.tables import read_table
table = read_table(sys.argv[1])
for path in sys.argv[2:]:
    model = boolit.load(path)
    np.save(path, model.predict_proba(table) if hasattr(model[-1], "classes_") else model.predict(table))
"""


def test_equal_predictions_in_another_process_without_the_lab(frame: pd.DataFrame, table: Path, tmp_path: Path) -> None:
    models = {"class": fit(frame, "class", normalization="batch"), "price": fit(frame, "price", width=(8, 6))}
    for target, model in models.items():
        save(model, tmp_path / f"{target}.skops")
    arguments = [str(path) for path in (table, *(tmp_path / f"{target}.skops" for target in models))]
    subprocess.run([sys.executable, "-W", "error", "-c", FRESH, *arguments], check=True, timeout=300)
    np.testing.assert_array_equal(np.load(f"{arguments[1]}.npy"), models["class"].predict_proba(frame))
    np.testing.assert_array_equal(np.load(f"{arguments[2]}.npy"), models["price"].predict(frame))


def test_predictions_as_csv(saved: Path, frame: pd.DataFrame, table: Path) -> None:
    out = io.StringIO()
    model = boolit.load(saved)
    assert write_predictions(model, table, out) == []
    written = pd.read_csv(io.StringIO(out.getvalue()))
    assert list(written) == ["class", "P(big)", "P(small)"]
    assert written["class"].tolist() == model.predict(frame).tolist()
    np.testing.assert_allclose(written[["P(big)", "P(small)"]], model.predict_proba(frame))
    frame.assign(color="violet").to_csv(table, index=False)
    assert write_predictions(model, table, io.StringIO()) == [
        "column 'color': 160 rows with categories that the model does not know: 'violet'"
    ]


def test_values_too_large_to_predict_are_refused(saved: Path, frame: pd.DataFrame) -> None:
    """7fbaaa9 named a class with NaN probabilities for a value beyond float32."""
    model = boolit.load(saved)
    for size in ("1e39", "1e200"):
        assert np.isfinite(model.predict_proba(frame.assign(size=size))).all()
    model[-1].module_.standardize.scale.div_(1e6)
    with pytest.raises(ValueError, match="prediction for sample 0 is not finite"):
        model.predict(frame.assign(size="1e305"))


def test_no_cell_is_a_formula(frame: pd.DataFrame, table: Path) -> None:
    model = fit(frame, "class")
    model[-1].classes_ = np.array(["=cmd|' /C calc'!A0", "-5"], dtype=object)
    model.about_ = {"target": "=target"}
    write_predictions(model, table, out := io.StringIO())
    written = pd.read_csv(io.StringIO(out.getvalue()), dtype=str)
    assert written.columns[0] == "'=target"
    assert set(written.iloc[:, 0]) <= {"'=cmd|' /C calc'!A0", "-5"}


def forge(change: Callable[[dict[str, Any]], None], source: Path, to: Path) -> Path:
    """Copy a model and change the attributes of its network in the schema."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(to, "w") as forged:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                network = schema["content"]["content"]["steps"]["content"][1]["content"][1]
                change(network["content"]["content"])
                content = json.dumps(schema).encode()
            forged.writestr(name, content)
    return to


def long_spec(network: dict[str, Any]) -> None:
    network["activation"]["content"] = json.dumps("or_" * 100_000 + "ail_d")


def surrogate(network: dict[str, Any]) -> None:
    for node in network["classes_"].get("content", []):
        node["content"] = json.dumps("\ud800")


@pytest.mark.parametrize("change", [long_spec, surrogate, lambda network: network.pop("weights_")])
def test_forged_models_are_refused_at_once(change: Callable[[dict[str, Any]], None], saved: Path, tmp_path: Path) -> None:
    """7fbaaa9 was busy for over 25 s with a long spec, and raised UnicodeEncodeError for a lone surrogate."""
    started = time.process_time()
    with pytest.raises(UserError, match="damaged or not a model") as caught:
        boolit.load(forge(change, saved, tmp_path / "forged.skops"))
    assert "\n" not in str(caught.value)
    assert time.process_time() - started < 20


def test_other_files_are_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a file"):
        boolit.load(tmp_path / "nothing.skops")
    with pytest.raises(UserError, match="not a skops file"):
        boolit.load(table)
    other = make_pipeline(LogisticRegression()).fit([[0.0], [1.0]], [0, 1])
    skops.io.dump(other, tmp_path / "other.skops")
    with pytest.raises(UserError, match="not a pipeline of preparation and network"):
        boolit.load(tmp_path / "other.skops")
    skops.io.dump({"f": Path}, tmp_path / "foreign.skops")
    with pytest.raises(UserError, match="damaged or not a model"):
        boolit.load(tmp_path / "foreign.skops")


def test_damage_is_noticed(saved: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    content, expected = saved.read_bytes(), boolit.load(saved).predict_proba(frame)
    path, random = tmp_path / "damaged.skops", np.random.default_rng(0)
    for place in random.integers(len(content), size=40):
        damaged = bytearray(content)
        damaged[place] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            model = boolit.load(path)
        except UserError:
            continue
        np.testing.assert_array_equal(model.predict_proba(frame), expected)  # the damage was in a date or the like
