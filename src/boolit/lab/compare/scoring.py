"""Scores on test rows with scikit-learn's scorers, of trained networks and of baselines, and the model that is saved."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

from boolit.errors import UserError, user_input
from boolit.lab.datasets.table import PreparedTable
from boolit.lab.runs import Metric, RunConfig
from boolit.sklearn import LogicalMLPClassifier, LogicalMLPRegressor

Estimator: TypeAlias = Any
RARE, DOMINANT = 0.1, 0.8  # share of a rare class among two; share of the largest of several
LAYER = ("linear", "norm", "activation")  # what a hidden layer consists of, in order
GUESS, LINEAR, BOOSTING = "guessing", "linear model", "gradient boosting"


class Scorer:
    """A scikit-learn scorer, with losses (``neg_…``) as positive numbers to be minimized.

    Without a name it is accuracy or RMSE, or a metric that suits rare classes.
    """

    def __init__(self, table: PreparedTable, name: str | None = None) -> None:
        self.table, self.note = table, ""
        self.name = name or self._default()
        with user_input():
            self._scorer = get_scorer(self.name)
        shown = self.name.removeprefix("neg_").replace("root_mean_squared_error", "rmse")
        self.metric = Metric(name=shown, goal="max" if shown == self.name else "min", percent=shown.endswith("accuracy"))

    def __call__(self, estimator: Estimator, number: int) -> float:
        """Return the score of an estimator on the test rows of a split. Classes are numbers."""
        rows = self.table.splitter.rows(number)["test"]
        x, y = self.table.features(rows, self.table.resample(number)), targets(self.table)[rows]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as a predicted class that no test row has; NaN is refused below
                score = float(self._scorer(estimator, x, y))
            if not math.isfinite(score):
                raise ValueError(f"it is {score}")
        except (AttributeError, TypeError, ValueError) as error:  # the metric does not fit the target
            reason = " ".join(str(error).split())[:200]
            fault = f"--metric {self.name} cannot be computed on the test rows of split {number} ({reason})"
            raise UserError(f"{fault}; give another metric, or a larger --test") from None
        return score * self.metric.sign

    def _default(self) -> str:
        if self.table.task == "regression":
            return "neg_root_mean_squared_error"
        shares = np.bincount(targets(self.table)) / len(self.table.labels)
        smallest = self.table.classes[int(shares.argmin())]
        if self.table.task == "binary" and shares.min() < RARE:
            self.note = f"the class {smallest!r} is rare ({shares.min():.1%} of the rows): the metric is roc_auc"
            return "roc_auc"
        if shares.max() > DOMINANT:
            self.note = f"one class has {shares.max():.0%} of the rows: the metric is balanced_accuracy"
            return "balanced_accuracy"
        return "accuracy"


def targets(table: PreparedTable) -> Any:
    """Return the targets of all rows: class indices, or the values to predict."""
    return table.labels if table.task == "regression" else table.y.flatten().long().numpy()


def fit_baseline(name: str, table: PreparedTable, number: int) -> Estimator:
    """Fit a baseline, for comparison with the networks, on the training and validation rows of a split."""
    weight, regression = table.source.class_weight, table.task == "regression"
    if name == GUESS:
        model: Estimator = DummyRegressor() if regression else DummyClassifier(strategy="prior")
    elif name == LINEAR:
        linear = Ridge() if regression else LogisticRegression(max_iter=200, class_weight=weight)
        model = make_pipeline(StandardScaler(), linear)
    elif regression:
        model = HistGradientBoostingRegressor(random_state=0)
    else:
        rounds = max(20, 200 // len(table.classes))  # each grows one tree per class
        model = HistGradientBoostingClassifier(max_iter=rounds, class_weight=weight, random_state=0)
    parts = table.splitter.rows(number)
    rows = np.sort(np.concatenate([parts["train"], parts["valid"]]))
    # Several threads of OpenMP beside those of torch wait for each other and take up to 20 times as long.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a linear model that has not converged is still a baseline
        return model.fit(table.features(rows, table.resample(number)), targets(table)[rows])


def network_estimator(run: RunConfig, table: PreparedTable, weights: Mapping[str, Tensor]) -> Estimator:
    """Return the network of a run as an estimator that takes unscaled features and predicts numbers of classes."""
    resample, regression = table.resample(run.split or 1), table.task == "regression"
    kind = LogicalMLPRegressor if regression else LogicalMLPClassifier
    estimator: Any = kind(run.activation, width=list(run.widths), normalization="batch", dropout=0.0)
    estimator.n_features_in_, estimator.widths_ = table.x.shape[1], list(run.widths)
    estimator.n_outputs_ = 1 if regression else len(table.classes)
    estimator.loss_curve_, estimator.validation_losses_, estimator._multilabel = [], [], False
    module = estimator.module_ = estimator._module()
    module.standardize.mean.copy_(torch.from_numpy(table.offset + table.unit * resample.mean.double().numpy()))
    module.standardize.scale.copy_(torch.from_numpy(table.unit * resample.scale.double().numpy()))
    if regression:
        module.unstandardize.mean.fill_(table.target_offset + table.target_unit * resample.target_mean)
        module.unstandardize.scale.fill_(table.target_unit * resample.target_scale)
    else:
        estimator.classes_ = np.arange(len(table.classes))
    state = module.network.state_dict()
    for name, values in weights.items():  # of a lab network, whose layers are in lists by kind
        layer, place, rest = name.split(".", 2)
        target = state[f"{len(LAYER) * int(place) + LAYER.index(layer)}.{rest}"]
        target.zero_()[len(target) - len(values) :] = values  # one logit z is the two logits 0 and z
    return estimator


def pipeline(estimator: Estimator, split: int, table: PreparedTable) -> Pipeline:
    """Return the model that is saved: preparation with the medians of a split's training rows, and the network."""
    numbers = slice(table.preparation.n_numbers_)
    centers = table.resample(split).mean.double().numpy()
    medians = table.offset[numbers] + table.unit[numbers] * centers[numbers]
    if table.task != "regression":
        estimator.classes_ = np.array(table.classes)
    return Pipeline([("preparation", table.preparation.with_medians(medians)), ("network", estimator)])
