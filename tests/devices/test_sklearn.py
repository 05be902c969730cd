"""Estimators trained on another device: the same networks, which are then on the CPU."""

import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from boolit.sklearn import LogicalMLPClassifier, LogicalMLPRegressor

X = np.random.default_rng(0).normal(size=(80, 3))
TARGETS = {LogicalMLPClassifier: X[:, 0] * X[:, 1] > 0, LogicalMLPRegressor: X[:, 0] * X[:, 1]}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("options", [{}, {"early_stopping": True, "normalization": "batch", "activation": "xnor_nil"}], ids=str)
def test_an_estimator_has_the_cpu_s_numbers(kind: type, options: dict[str, Any], standin: ModuleType) -> None:
    expected = kind(random_state=0, max_iter=3, **options).fit(X, TARGETS[kind])
    standin.transfers.clear()
    fitted = kind(random_state=0, max_iter=3, device=standin.NAME, **options).fit(X, TARGETS[kind])
    assert standin.transfers["from the CPU"] > 0
    assert fitted.loss_curve_ == expected.loss_curve_
    assert fitted.validation_losses_ == expected.validation_losses_
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), expected.predict(X))
    assert {values.device.type for values in fitted.module_.state_dict().values()} == {"cpu"}


@pytest.mark.parametrize(
    ("device", "message"), [("cuda:99", "there is no device 'cuda:99' here; torch can use cpu"), (7, "device")]
)
def test_a_device_that_is_not_there(device: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LogicalMLPClassifier(device=device).fit(X, TARGETS[LogicalMLPClassifier])
