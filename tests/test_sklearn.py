"""The estimators: scikit-learn's own checks, its tools, the promises of docs/sklearn.md, and how well they learn."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import skops.io
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine, make_multilabel_classification
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

from boolit.nn.width import count_parameters
from boolit.sklearn import LogicalMLPClassifier, LogicalMLPRegressor

BOTH = pytest.mark.parametrize("kind", [LogicalMLPClassifier, LogicalMLPRegressor])


def noise(n: int, features: int = 4, classes: int = 3) -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    return random.normal(size=(n, features)), random.randint(classes, size=n)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in model.module_.state_dict().values()])


@BOTH
@pytest.mark.parametrize("options", [{}, {"early_stopping": True, "normalization": "batch"}])
def test_check_estimator(kind: Any, options: dict[str, Any]) -> None:
    results = check_estimator(kind(max_iter=15, **options), on_skip=None)
    assert len(results) > 50
    assert {result["check_name"] for result in results if result["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize(
    ("kind", "load", "least"), [(LogicalMLPClassifier, load_wine, 0.95), (LogicalMLPRegressor, load_diabetes, 0.42)]
)
def test_five_folds(kind: Any, load: Any, least: float) -> None:
    assert cross_val_score(kind(random_state=0), *load(return_X_y=True), cv=5).mean() >= least


@BOTH
@pytest.mark.parametrize("options", [{}, {"early_stopping": True, "normalization": "batch"}], ids=str)
def test_a_weight_is_a_number_of_copies_in_any_order(kind: Any, options: dict[str, Any]) -> None:
    (x, y), random = noise(90), np.random.RandomState(1)
    times, order = random.randint(4, size=90), random.permutation(90)
    model = kind(max_iter=4, random_state=0, **options)
    copied = clone(model).fit(x.repeat(times, 0), y.repeat(times))
    weighted = clone(model).fit(x[order], y[order], sample_weight=times[order])
    assert torch.equal(weights(copied), weights(weighted))
    assert not torch.equal(weights(copied), weights(clone(model).fit(x[times > 0], y[times > 0])))


def test_class_weights_are_sample_weights() -> None:
    x, y = noise(90)
    y = np.minimum(y * (np.arange(90) % 3 == 0), 1)
    balanced = LogicalMLPClassifier(max_iter=3, class_weight="balanced", random_state=0).fit(x, y)
    expected = 90 / (2 * np.bincount(y)[y])
    assert torch.equal(weights(balanced), weights(LogicalMLPClassifier(max_iter=3, random_state=0).fit(x, y, expected)))


@BOTH
def test_random_state_decides_and_torch_is_left_alone(kind: Any) -> None:
    x, y = noise(80)
    before = torch.get_rng_state()
    first = kind(max_iter=3, random_state=0).fit(x, y)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert torch.equal(weights(first), weights(kind(max_iter=3, random_state=0).fit(x, y)))
    finally:
        torch.set_default_dtype(torch.float32)
    assert not torch.equal(weights(first), weights(kind(max_iter=3, random_state=1).fit(x, y)))


def by_skops(model: Any) -> Any:
    return skops.io.loads(skops.io.dumps(model), trusted=[LogicalMLPClassifier, LogicalMLPRegressor])


@BOTH
@pytest.mark.parametrize("twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), by_skops])
def test_copies_predict_and_continue_the_same(kind: Any, twin: Any) -> None:
    x, y = noise(40)
    model = kind("or_ail+prelu_d", max_iter=2, width=(8, 6), normalization="layer", random_state=0).fit(x, y)
    other = twin(model)
    np.testing.assert_array_equal(other.predict(x), model.predict(x))
    assert other.partial_fit(x, y).n_iter_ == 3


def test_module_reads_raw_inputs_of_any_scale() -> None:
    x, y = load_diabetes(return_X_y=True)
    far = np.hstack([1e9 + 1e3 * x, np.full((len(x), 1), 0.1)])
    model = LogicalMLPRegressor(random_state=0).fit(far, 1e8 + y)
    assert model.score(far, 1e8 + y) > 0.45
    outputs = model.module_(torch.tensor(far)).detach().numpy()
    np.testing.assert_allclose(outputs.ravel(), model.predict(far), rtol=1e-12)


def test_several_targets_and_labels() -> None:
    x, _ = noise(300)
    y = np.stack([x[:, 0] * x[:, 1], 100 + 50 * x[:, 2]], 1)
    model = LogicalMLPRegressor(dropout=0, random_state=0).fit(x, y)
    assert r2_score(y, model.predict(x), multioutput="raw_values").min() > 0.9
    x, y = make_multilabel_classification(300, n_classes=4, random_state=0)
    labels = LogicalMLPClassifier(random_state=0).fit(x, y)
    assert labels.predict_proba(x).shape == y.shape
    assert (labels.predict(x) == y).mean() > 0.9


def test_sizes_are_matched() -> None:
    x, y = load_iris(return_X_y=True)
    specs = ("relu", "or_ail", "or_and_xnor_nail_d", "max_min_d")
    sizes = [count_parameters(LogicalMLPClassifier(spec, max_iter=1).fit(x, y).module_) for spec in specs]
    assert max(sizes) / min(sizes) < 1.05, sizes
    large = LogicalMLPClassifier(budget=20_000, hidden_layers=3, max_iter=1).fit(x, y)
    assert count_parameters(large.module_) == pytest.approx(20_000, rel=0.03)
    assert LogicalMLPClassifier(width=10, max_iter=1).fit(x, y).widths_ == [10, 10]
    narrow = LogicalMLPClassifier("or_ail", width=(12, 8, 4), max_iter=1).fit(x, y)
    assert [layer.out_features for layer in narrow.module_.network if isinstance(layer, torch.nn.Linear)] == [12, 8, 4, 3]


def test_tools_of_scikit_learn() -> None:
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(MinMaxScaler(), LogicalMLPClassifier(max_iter=10, random_state=0))
    grid = {"logicalmlpclassifier__activation": ["identity", "or_ail"], "logicalmlpclassifier__width": [2, 32]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, load_iris().target_names[y])
    assert search.best_params_["logicalmlpclassifier__width"] == 32
    assert set(search.predict(x)) == {"setosa", "versicolor", "virginica"}


def test_partial_fit_learns_from_a_stream() -> None:
    x, y = load_digits(return_X_y=True)
    model = LogicalMLPClassifier(dropout=0, random_state=0)
    with pytest.raises(ValueError, match="classes must be given"):
        model.partial_fit(x, y)
    for _ in range(4):
        for rows in np.array_split(np.random.RandomState(0).permutation(len(x)), 4):
            model.partial_fit(x[rows], y[rows], classes=np.arange(10))
    assert model.score(x, y) > 0.95
    with pytest.raises(ValueError, match="not in classes"):
        model.partial_fit(x[:5], [10] * 5)


def test_early_stopping_keeps_the_best_epoch() -> None:
    x, y = noise(200)
    model = LogicalMLPClassifier(early_stopping=True, patience=3, dropout=0, random_state=0).fit(x, y)
    losses = model.validation_losses_
    assert len(losses) == model.n_iter_ == len(model.loss_curve_) < 50
    assert len(losses) - 1 == max(losses.index(min(losses)) + 3, 14)  # 15 of 50 epochs are warm-up
    short = clone(model).set_params(max_iter=50, patience=50).fit(x, y)
    assert torch.equal(weights(short), weights(model)) == (min(short.validation_losses_) == min(losses))


def test_a_validation_loss_that_is_not_a_number_is_never_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, states = iter([float("nan"), 0.5, float("nan"), 0.7]), []

    def validate(self: Any, *_: Any) -> float:
        states.append(copy.deepcopy(self._network.state_dict()))
        return next(losses)

    monkeypatch.setattr(LogicalMLPClassifier, "_validate", validate)
    model = LogicalMLPClassifier(early_stopping=True, max_iter=4, random_state=0).fit(*noise(60))
    assert all(torch.equal(model.module_.network.state_dict()[name].float(), values) for name, values in states[1].items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_layers": 0}, "'hidden_layers' parameter of LogicalMLPClassifier must be an int in the range"),
        ({"normalization": "group"}, "'normalization' parameter .* must be a str among"),
        ({"learning_rate": float("nan")}, "'learning_rate' parameter"),
        ({"width": 8, "budget": 100}, "width=8 and budget=100 exclude each other"),
        ({"width": (8, 0)}, "must hold positive integers"),
        ({"activation": "or_ail", "width": 7}, "or_ail needs a multiple of 2 channels, got 7"),
        ({"activation": "or_nail_q"}, "unknown activation 'or_nail_q'"),
        ({"learning_rate": 1e30}, r"the loss became (nan|inf) in epoch \d+; lower learning_rate"),
    ],
    ids=str,
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogicalMLPClassifier(**options).fit(*noise(30))


def test_too_few_samples() -> None:
    assert LogicalMLPRegressor(max_iter=1).fit([[1.0]], [2.0]).predict([[1.0]]).shape == (1,)
    with pytest.raises(ValueError, match="too few for normalization='batch'"):
        LogicalMLPRegressor(normalization="batch").fit([[1.0], [1.0]], [2.0, 2.0])
    with pytest.raises(ValueError, match="cannot be split for early_stopping"):
        LogicalMLPRegressor(early_stopping=True).fit([[1.0]], [2.0])
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        LogicalMLPRegressor().fit([[1.0]], [2.0], [0.0])


IMPORTS = """
import sys
sys.modules["sklearn"] = None
try:
    import boolit.sklearn
except ImportError as error:
    print(error)
del sys.modules["sklearn"]
import boolit.sklearn
print([name for name in sys.modules if name.startswith(("boolit.lab", "pydantic", "skops"))])
"""


def test_needs_scikit_learn_and_no_lab() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["boolit.sklearn needs scikit-learn: pip install 'boolit[sklearn]'", "[]"]
