"""The classifier and the regressor: their parameters, fitting, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

import boolit
from boolit._devices import choose_device
from boolit.nn import Activation, Pointwise
from boolit.nn.mlp import MLP, GeneratedDropout, Standardise, Unstandardise
from boolit.nn.width import mlp_parameters, width_for_budget
from boolit.sklearn._training import (
    CLASSIFICATION,
    REGRESSION,
    Array,
    FitOptions,
    Objective,
    Samples,
    Tensors,
    distinct,
    scaling,
    split,
    train,
)

# What an estimator's parameters may be; checked when it is fitted, as scikit-learn asks.


def _whole(lowest: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= lowest


def _between(lowest: float, highest: float, *, lowest_too: bool) -> Callable[[object], bool]:
    def fits(value: object) -> bool:
        return isinstance(value, Real) and (lowest < float(value) < highest or (lowest_too and float(value) == lowest))

    return fits


def _or(special: object, rule: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is special or (isinstance(value, str) and value == special) or rule(value)


INFINITY = float("inf")
RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "hidden_layers": (_whole(1), "a whole number from 1"),
    "width": (_or(None, _whole(1)), "None or a whole number from 1"),
    "budget": (_or(None, _whole(1)), "None or a whole number of parameters from 1"),
    "normalisation": (lambda value: value in ("batch", "layer", "none"), "'batch', 'layer' or 'none'"),
    "dropout": (_between(0, 1, lowest_too=True), "a number from 0 and below 1"),
    "learning_rate": (_between(0, INFINITY, lowest_too=False), "a finite number above 0"),
    "weight_decay": (_between(0, INFINITY, lowest_too=True), "a finite number from 0"),
    "batch_size": (_or("auto", _whole(2)), "'auto' or a whole number from 2"),
    "max_iter": (_whole(1), "a whole number of epochs from 1"),
    "validation_fraction": (_between(0, 1, lowest_too=False), "a number between 0 and 1"),
    "patience": (_whole(1), "a whole number of epochs from 1"),
    "device": (lambda value: isinstance(value, (str, torch.device)), "a name such as 'cpu', 'cuda' or 'auto'"),
}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuses the first parameter that breaks its rule.

    Example:
        >>> check_settings({"dropout": 0.5})
        >>> check_settings({"dropout": 1.0})
        Traceback (most recent call last):
        ValueError: dropout=1.0 is not allowed; give a number from 0 and below 1
    """
    for name, value in settings.items():
        fits, rule = RULES.get(name, (lambda _: True, ""))
        if not fits(value):
            raise ValueError(f"{name}={value!r} is not allowed; give {rule}")
    if settings.get("width") is not None and settings.get("budget") is not None:
        raise ValueError(f"width={settings['width']} and budget={settings['budget']} exclude each other; give one of them")


# What the classifier and the regressor share: the parameters, fitting, and the network's outputs.

FEWEST_BATCHES, SMALLEST_BATCH, LARGEST_BATCH = 8, 64, 256
ROWS_AT_ONCE = 8192
RELU_WIDTH = 64
DTYPES = (np.float64, np.float32)


class LogicalMLP(BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron by its parameters."""

    def __init__(
        self,
        activation: str | type[nn.Module] | Activation = "or_and_xnor_nail_d",
        *,
        hidden_layers: int = 2,
        width: int | None = None,
        budget: int | None = None,
        normalisation: Literal["batch", "layer", "none"] = "none",
        dropout: float = 0.3,
        learning_rate: float = 5e-3,
        weight_decay: float = 1.0,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 50,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        standardise: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        device: str | torch.device = "cpu",
    ) -> None:
        """Parameters are kept as they are, and checked when it is fitted.

        Args:
            activation: what `boolit.activation` takes; each layer has a copy of its own.
            hidden_layers: how many, all of one width.
            width: of a layer before its activation; by the budget unless given.
            budget: parameters of the network; those of a ReLU network of width 64 unless given.
            normalisation: ``batch``, ``layer`` or ``none``.
            dropout: the probability of a 0 after each activation.
            learning_rate: the highest of one cycle, with AdamW.
            weight_decay: AdamW's.
            batch_size: an eighth of the samples, 64 at least and 256 at most, if ``auto``.
            max_iter: epochs.
            early_stopping: whether to stop by a validation score.
            validation_fraction: the share of the samples that is held out for that.
            patience: epochs without a better score before it stops; the best epoch is kept.
            standardise: whether inputs, and numbers to predict, are standardised within the model.
            random_state: an int for the same result every time.
            verbose: whether to print a line per epoch.
            device: where to train, such as ``cuda``; ``auto`` is a GPU if there is one. What was fitted is on the CPU.
        """
        self.activation = activation
        self.hidden_layers = hidden_layers
        self.width = width
        self.budget = budget
        self.normalisation = normalisation
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.standardise = standardise
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def _fit(self, objective: Objective, x: Array, y: Array, sample_weight: npt.ArrayLike | None, outputs: int) -> None:
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        training, validation = distinct(Samples(x, y, weight)), None
        drawn = check_random_state(self.random_state)
        if self.early_stopping:
            training, validation = split(training, self.validation_fraction, drawn)
        generator = torch.Generator().manual_seed(int(drawn.randint(2**31 - 1)))
        device = choose_device(self.device)
        network = self._network(outputs, generator).to(device)
        before, after = self._standardisers(objective, training)
        history = train(
            network,
            objective,
            _tensors(training, objective, before, after).to(device),
            None if validation is None else _tensors(validation, objective, before, after).to(device),
            self._options(len(training.x)),
            generator,
        )
        self.module_ = _module_to_keep(before, network.cpu(), after)
        self.n_iter_, self.loss_curve_ = len(history.losses), history.losses
        self.validation_scores_ = history.validation_scores if self.early_stopping else None

    def _network(self, outputs: int, generator: torch.Generator) -> MLP:
        """The network; its width, unless given, brings its parameters nearest to the budget.

        Without a budget they are those of a ReLU network of width 64: activations are compared at equal size.
        """
        inputs, depth, activation = self.n_features_in_, self.hidden_layers, boolit.activation(self.activation)

        def count(width: int, by: Activation = activation) -> int:
            return mlp_parameters(inputs, [width] * depth, outputs, by, batch_norm=self.normalisation != "none")

        budget = self.budget or count(RELU_WIDTH, Pointwise("relu"))
        self.width_ = self.width or width_for_budget(count, budget, activation.divisor)
        return MLP(
            inputs,
            [self.width_] * depth,
            outputs,
            activation,
            normalisation=self.normalisation,
            dropout=self.dropout,
            generator=generator,
        )

    def _standardisers(self, objective: Objective, training: Samples) -> tuple[Standardise | None, Standardise | None]:
        """What standardises the inputs, and the targets if they are numbers."""
        if not self.standardise:
            return None, None
        before = _standardiser(training.x, training.weight)
        return before, _standardiser(training.y, training.weight) if objective.numeric else None

    def _options(self, n: int) -> FitOptions:
        if n == 1 and self.normalisation == "batch":
            raise ValueError("n_samples=1 is too few for normalisation='batch'; use 'layer' or 'none'")
        automatic = min(max(n // FEWEST_BATCHES, SMALLEST_BATCH), LARGEST_BATCH)
        batch_size = automatic if self.batch_size == "auto" else self.batch_size
        return FitOptions(self.learning_rate, self.weight_decay, batch_size, self.max_iter, self.patience, bool(self.verbose))

    @torch.no_grad()
    def _outputs(self, X: npt.ArrayLike) -> Tensor:  # noqa: N803
        """What the network gives for each sample.

        Shape: ``(n, features)`` to ``(n, outputs)``, float64.
        """
        check_is_fitted(self)
        x = torch.tensor(validate_data(self, X, reset=False, dtype=np.float64))
        return torch.cat([self.module_(piece) for piece in x.split(ROWS_AT_ONCE)])


def _standardiser(values: Array, weight: Array) -> Standardise:
    mean, deviation = scaling(values, weight)
    return Standardise(torch.tensor(mean), torch.tensor(deviation), torch.float64)


def _module_to_keep(before: Standardise | None, trained: MLP, after: Standardise | None) -> nn.Sequential:
    """Inputs as given to outputs as wanted, of picklable layers, in float64, ready to evaluate.

    In float32 a sample's prediction would depend, in its last digits, on how many samples are beside it.
    """
    layers = [nn.Dropout(layer.p) if isinstance(layer, GeneratedDropout) else layer for layer in trained]
    ends = [before] if before else [], [Unstandardise(after.mean, after.scale)] if after else []
    return nn.Sequential(*ends[0], *layers, *ends[1]).double().eval()


def _tensors(samples: Samples, objective: Objective, before: Standardise | None, after: Standardise | None) -> Tensors:
    x, y, weight = (torch.tensor(part) for part in samples)
    x, y = before(x) if before else x, after(y) if after else y
    return Tensors(x.float(), y.float() if objective.numeric else y, (weight / weight.mean()).float())


class LogicalMLPClassifier(ClassifierMixin, LogicalMLP):  # type: ignore[misc]
    """A multi-layer perceptron with logical activations that tells classes apart, trained on cross-entropy.

    Once fitted it has ``classes_``, ``module_`` (a plain `torch.nn.Sequential` from samples to logits, in float64), ``width_``,
    ``n_iter_``, ``loss_curve_`` and ``validation_scores_``.

    Shape: X ``(n, features)``, y ``(n,)`` of any labels, probabilities ``(n, classes)``.

    Example:
        >>> X, y = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), ["same", "differ", "differ", "same"]
        >>> model = LogicalMLPClassifier("xnor_il", dropout=0, random_state=0).fit(X, y)
        >>> list(map(str, model.predict(X)))
        ['same', 'differ', 'differ', 'same']
        >>> np.allclose(model.predict_proba(X), np.exp(model.predict_log_proba(X))), model.predict_proba(X).shape
        (True, (4, 2))
    """

    def fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
    ) -> LogicalMLPClassifier:
        """Trains a new network; a sample of weight 2 counts as one given twice.

        Shape: X ``(n, features)``, y ``(n,)``, sample_weight ``(n,)``.
        """
        check_settings(self.get_params())
        x, labels = validate_data(self, X, y, dtype=DTYPES)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._fit(CLASSIFICATION, x, codes, sample_weight, len(self.classes_))
        return self

    def predict(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The most probable class of each sample.

        Shape: ``(n, features)`` to ``(n,)``.
        """
        best = self._outputs(X).argmax(1).numpy()
        predicted: Array = self.classes_[best]
        return predicted

    def predict_proba(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The probability of each class, in the order of ``classes_``.

        Shape: ``(n, features)`` to ``(n, classes)``.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The logarithm of each class's probability, accurate for improbable ones too.

        Shape: ``(n, features)`` to ``(n, classes)``.
        """
        logarithms: Array = self._outputs(X).log_softmax(1).numpy()
        return logarithms


class LogicalMLPRegressor(MultiOutputMixin, RegressorMixin, LogicalMLP):  # type: ignore[misc]
    """A multi-layer perceptron with logical activations that predicts numbers, trained on squared errors.

    Once fitted it has ``module_`` (a plain `torch.nn.Sequential` from samples to numbers, in float64), ``width_``, ``n_iter_``,
    ``loss_curve_`` and ``validation_scores_``.

    Shape: X ``(n, features)``, y ``(n,)`` or ``(n, targets)``; predictions as y.

    Example:
        >>> X = np.linspace(-1, 1, 200).reshape(-1, 1)
        >>> model = LogicalMLPRegressor(dropout=0, random_state=0).fit(X, X.ravel() ** 2)
        >>> model.score(X, X.ravel() ** 2) > 0.99, model.predict(X).shape
        (True, (200,))
    """

    def fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
    ) -> LogicalMLPRegressor:
        """Trains a new network; a sample of weight 2 counts as one given twice.

        Shape: X ``(n, features)``, y ``(n,)`` or ``(n, targets)``, sample_weight ``(n,)``.
        """
        check_settings(self.get_params())
        x, targets = validate_data(self, X, y, dtype=DTYPES, multi_output=True, y_numeric=True)
        columns = np.asarray(targets, dtype=np.float64).reshape(len(x), -1)
        self._fit(REGRESSION, x, columns, sample_weight, columns.shape[1])
        return self

    def predict(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The predicted numbers; one target gives a flat array.

        Shape: ``(n, features)`` to ``(n,)`` or ``(n, targets)``.
        """
        outputs: Array = self._outputs(X).numpy()
        return outputs.ravel() if outputs.shape[1] == 1 else outputs
