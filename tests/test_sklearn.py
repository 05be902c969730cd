"""The estimators: scikit-learn's own checks, its tools, the promises of docs/sklearn.md, and how well they learn."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from boolit.nn.mlp import GeneratedDropout
from boolit.nn.width import count_parameters
from boolit.sklearn import LogicalMLPClassifier, LogicalMLPRegressor
from boolit.sklearn._training import CLASSIFICATION, REGRESSION, FitOptions, Samples, Tensors, distinct, scaling, split, train

BOTH = pytest.mark.parametrize("kind", [LogicalMLPClassifier, LogicalMLPRegressor])
# scikit-learn leaves these out itself, whatever the estimator: there is no pandas here, and SCIPY_ARRAY_API is not set.
LEFT_OUT = re.compile(r"pandas is not installed|SCIPY_ARRAY_API is not set")


def noise(n: int, features: int = 4, classes: int = 3) -> tuple[Any, Any]:
    drawn = np.random.RandomState(0)
    return drawn.normal(size=(n, features)), drawn.randint(classes, size=n)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.module_.state_dict().values()])


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (LogicalMLPClassifier, {"max_iter": 15}),  # of 50, enough for scikit-learn's problems
        (LogicalMLPRegressor, {"max_iter": 15}),
        (LogicalMLPClassifier, {"activation": "relu", "early_stopping": True, "max_iter": 10}),
        (LogicalMLPRegressor, {"activation": "relu", "early_stopping": True, "max_iter": 10}),
        (LogicalMLPClassifier, {"activation": "or_ail", "normalisation": "batch", "max_iter": 10, "dropout": 0}),
    ],
    ids=str,
)
def test_check_estimator(kind: Any, parameters: dict[str, Any]) -> None:
    results = check_estimator(kind(**parameters), on_skip=None)
    assert len(results) > 50
    assert all(result["status"] == "passed" or LEFT_OUT.search(str(result["exception"])) for result in results)


def test_digits() -> None:
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, random_state=0, stratify=y)
    assert LogicalMLPClassifier(random_state=0).fit(x, y).score(x_test, y_test) >= 0.97


@pytest.mark.parametrize(
    ("kind", "load", "least"),
    [
        (LogicalMLPClassifier, load_wine, 0.95),
        (LogicalMLPRegressor, load_diabetes, 0.42),
    ],
)
def test_five_folds(kind: Any, load: Any, least: float) -> None:
    assert cross_val_score(kind(random_state=0), *load(return_X_y=True), cv=5).mean() >= least


@BOTH
@pytest.mark.parametrize("parameters", [{}, {"early_stopping": True, "normalisation": "batch"}], ids=str)
def test_a_weight_is_a_number_of_copies_in_any_order(kind: Any, parameters: dict[str, Any]) -> None:
    (x, y), drawn = noise(90), np.random.RandomState(1)
    times, order = drawn.randint(4, size=90), drawn.permutation(90)
    model = kind(max_iter=4, random_state=0, **parameters)
    copied = clone(model).fit(x.repeat(times, 0), y.repeat(times))
    weighted = clone(model).fit(x[order], y[order], sample_weight=times[order])
    assert torch.equal(weights(copied), weights(weighted))
    assert not torch.equal(weights(copied), weights(clone(model).fit(x[times > 0], y[times > 0])))


def test_weights_move_the_prediction() -> None:
    x, y = np.zeros((2, 1)), np.array([0.0, 1.0])
    model = LogicalMLPRegressor(dropout=0, weight_decay=0, max_iter=200, random_state=0).fit(x, y, sample_weight=[3.0, 1.0])
    assert model.predict([[0.0]]) == pytest.approx(0.25, abs=1e-2)


@BOTH
def test_random_state_decides_and_torch_is_left_alone(kind: Any) -> None:
    x, y = noise(80)
    before = torch.get_rng_state()
    one = kind(max_iter=3, random_state=0).fit(x, y)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(weights(one), weights(kind(max_iter=3, random_state=0).fit(x, y)))
    assert not torch.equal(weights(one), weights(kind(max_iter=3, random_state=1).fit(x, y)))


@BOTH
@pytest.mark.parametrize("twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"])
def test_copies_predict_the_same(kind: Any, twin: Any) -> None:
    x, y = noise(40)
    model = kind("or_ail+prelu_d", max_iter=2, normalisation="layer", random_state=0).fit(x, y)
    np.testing.assert_array_equal(twin(model).predict(x), model.predict(x))


def test_fitting_under_no_grad_and_another_default_dtype() -> None:
    x, y = noise(40)
    usual = weights(LogicalMLPClassifier("prelu", max_iter=2, random_state=0).fit(x, y))
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            model = LogicalMLPClassifier("prelu", max_iter=2, random_state=0).fit(x, y)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(weights(model), usual)


def test_module_reads_raw_inputs() -> None:
    x, y = load_diabetes(return_X_y=True)
    model = LogicalMLPRegressor(max_iter=2, random_state=0).fit(1e3 * x + 1e5, y)
    outputs = model.module_(torch.tensor(1e3 * x + 1e5)).detach().numpy()
    np.testing.assert_allclose(outputs.ravel(), model.predict(1e3 * x + 1e5), rtol=1e-9)


def test_far_and_narrow_columns_are_no_harder() -> None:
    x, y = load_diabetes(return_X_y=True)
    far = np.hstack([1e9 + 1e3 * x, np.full((len(x), 1), 0.1)])
    model = LogicalMLPRegressor(random_state=0).fit(far, 1e8 + y)
    assert model.score(far, 1e8 + y) > 0.45


def test_several_targets() -> None:
    x, _ = noise(300)
    y = np.stack([x[:, 0] * x[:, 1], 100 + 50 * x[:, 2]], 1)
    model = LogicalMLPRegressor(dropout=0, random_state=0).fit(x, y)
    assert model.predict(x).shape == y.shape
    assert r2_score(y, model.predict(x), multioutput="raw_values").min() > 0.9


def test_sizes_are_matched() -> None:
    x, y = load_iris(return_X_y=True)
    sizes = {}
    for spec in ("relu", "or_ail", "or_and_xnor_nail_d", "max_min_d"):
        model = LogicalMLPClassifier(spec, max_iter=1, random_state=0).fit(x, y)
        sizes[spec] = count_parameters(model.module_)
    assert max(sizes.values()) / min(sizes.values()) < 1.05, sizes
    large = LogicalMLPClassifier(budget=20_000, hidden_layers=3, max_iter=1).fit(x, y)
    assert count_parameters(large.module_) == pytest.approx(20_000, rel=0.03)
    assert LogicalMLPClassifier(width=10, max_iter=1).fit(x, y).module_[1].out_features == 10


def test_tools_of_scikit_learn() -> None:
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(MinMaxScaler(), LogicalMLPClassifier(max_iter=10, random_state=0))
    grid = {"logicalmlpclassifier__activation": ["identity", "or_ail"], "logicalmlpclassifier__width": [2, 32]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, load_iris().target_names[y])
    assert search.best_params_["logicalmlpclassifier__width"] == 32
    assert set(search.predict(x)) == {"setosa", "versicolor", "virginica"}


def test_column_names() -> None:
    x, y = noise(30, features=3)
    table = pa.table({name: x[:, column] for column, name in enumerate("abc")})
    model = LogicalMLPClassifier(max_iter=1, random_state=0).fit(table, y)
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(table), LogicalMLPClassifier(max_iter=1, random_state=0).fit(x, y).predict(x))
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(table.select(["b", "a", "c"]))
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
        model.predict(table.select(["a", "b"]))


def test_sparse_input_is_refused_in_scikit_learns_words() -> None:
    x, y = noise(30)
    with pytest.raises(TypeError, match="Sparse data was passed"):
        LogicalMLPClassifier().fit(csr_array(x), y)


def test_early_stopping_on_noise() -> None:
    x, y = noise(200)
    model = LogicalMLPClassifier(early_stopping=True, patience=3, dropout=0, random_state=0).fit(x, y)
    assert model.n_iter_ < 50
    assert len(model.validation_scores_) == len(model.loss_curve_) == model.n_iter_
    assert LogicalMLPClassifier(max_iter=2).fit(x, y).validation_scores_ is None


def test_the_best_epoch_is_kept() -> None:
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=drawn), torch.randn(60, 1, generator=drawn)
    network = torch.nn.Sequential(torch.nn.Linear(5, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    halves = [Tensors(x[rows], y[rows], torch.ones(30)) for rows in (slice(30), slice(30, 60))]
    history = train(network, REGRESSION, halves[0], halves[1], FitOptions(0.05, 0.0, 10, 40, 6, False), drawn)
    kept = REGRESSION.loss(network.eval()(halves[1].x), halves[1].y).mean().item()
    assert kept == pytest.approx(min(history.validation_losses), rel=1e-5)
    assert history.validation_losses.index(min(history.validation_losses)) == len(history.losses) - 1 - 6


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    LogicalMLPClassifier(max_iter=2, early_stopping=True, verbose=True, random_state=0).fit(*noise(30))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"epoch 2: loss \d\.\d{6}, validation score \d\.\d{6}", lines[1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden_layers": 0}, "hidden_layers=0 is not allowed; give a whole number from 1"),
        ({"dropout": 1.0}, "dropout=1.0 is not allowed"),
        ({"batch_size": 1}, "batch_size=1 is not allowed; give 'auto' or a whole number from 2"),
        ({"normalisation": "group"}, "normalisation='group' is not allowed; give 'batch', 'layer' or 'none'"),
        ({"learning_rate": float("nan")}, "learning_rate=nan is not allowed"),
        ({"max_iter": 2.5}, "max_iter=2.5 is not allowed"),
        ({"width": 8, "budget": 100}, "width=8 and budget=100 exclude each other"),
        ({"activation": "or_ail", "width": 7}, "or_ail needs a multiple of 2 channels, got 7; use 6 or 8"),
        ({"activation": "or_nail_q"}, "unknown activation 'or_nail_q'"),
        ({"learning_rate": 1e30}, r"the loss became (nan|inf) in epoch \d+; lower learning_rate"),
    ],
    ids=str,
)
def test_wrong_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogicalMLPClassifier(**parameters).fit(*noise(30))


def test_too_few_samples_are_refused_where_one_is_not_enough() -> None:
    assert LogicalMLPRegressor(max_iter=1).fit([[1.0]], [2.0]).predict([[1.0]]).shape == (1,)
    with pytest.raises(ValueError, match="n_samples=1 is too few for normalisation='batch'; use 'layer' or 'none'"):
        LogicalMLPRegressor(normalisation="batch").fit([[1.0], [1.0]], [2.0, 2.0])
    with pytest.raises(ValueError, match="n_samples=1 cannot be split for early_stopping"):
        LogicalMLPRegressor(early_stopping=True).fit([[1.0]], [2.0])
    with pytest.raises(ValueError, match="sample_weight is 0 for every sample"):
        distinct(Samples(np.ones((1, 1)), np.ones(1), np.zeros(1)))


rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=30)


@given(rows.filter(lambda samples: any(weight for *_, weight in samples)))
@settings(max_examples=60)
def test_distinct_samples_keep_their_weight(samples: list[tuple[int, int, int]]) -> None:
    x, y, weight = np.array(samples, dtype=float).T
    found = distinct(Samples(x.reshape(-1, 1), y, weight))
    expected: Counter[tuple[int, int]] = Counter()
    for *row, count in samples:
        expected[row[0], row[1]] += count
    got = {(a, b): c for a, b, c in zip(found.x.ravel(), found.y, found.weight, strict=True)}
    assert len(got) == len(found.x)
    assert got == {row: count for row, count in expected.items() if count}


@given(st.integers(2, 60), st.floats(0.01, 0.99))
@settings(max_examples=60)
def test_split_parts_the_samples_with_the_same_mix(n: int, fraction: float) -> None:
    x = np.arange(n, dtype=float).reshape(-1, 1)
    y = np.arange(n) % 2
    training, validation = split(Samples(x, y, np.ones(n)), fraction, np.random.RandomState(0))
    assert sorted([*training.x.ravel(), *validation.x.ravel()]) == list(range(n))
    assert len(validation.x) == min(max(round(fraction * n), 1), n - 1)
    assert abs(validation.y.sum() - len(validation.y) / 2) <= 1


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_scaling_and_scores_as_scikit_learns(seed: int) -> None:
    drawn = np.random.RandomState(seed)
    x, outputs, weight = drawn.normal(3, 2, (20, 3)), drawn.normal(3, 2, (20, 3)), drawn.uniform(0.1, 2, 20)
    scaler = StandardScaler().fit(x, sample_weight=weight)
    np.testing.assert_allclose(scaling(x, weight), (scaler.mean_, scaler.scale_))
    as_tensors = [torch.tensor(value) for value in (outputs, x, weight)]
    assert REGRESSION.score(*as_tensors).item() == pytest.approx(r2_score(x, outputs, sample_weight=weight))
    codes = as_tensors[1].argmax(1)
    expected = accuracy_score(codes, outputs.argmax(1), sample_weight=weight)
    assert CLASSIFICATION.score(as_tensors[0], codes, as_tensors[2]).item() == pytest.approx(expected)


def test_dropout_keeps_the_mean() -> None:
    layer = GeneratedDropout(0.3, torch.Generator().manual_seed(0))
    dropped = layer(torch.ones(100_000))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert dropped.mean().item() == pytest.approx(1, abs=0.01)
    assert torch.equal(layer.eval()(torch.ones(5)), torch.ones(5))


IMPORTS = """
import sys
sys.modules["sklearn"] = None
try:
    import boolit.sklearn
except ImportError as error:
    print(error)
del sys.modules["sklearn"]
import boolit.sklearn
print([name for name in sys.modules if name.startswith(("boolit.lab", "pydantic"))])
"""


def test_needs_scikit_learn_and_no_lab() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["boolit.sklearn needs scikit-learn: pip install 'boolit[sklearn]'", "[]"]
