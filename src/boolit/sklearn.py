"""Multi-layer perceptrons with logical activations as scikit-learn estimators."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_random_state
    from sklearn.utils._param_validation import Interval, StrOptions
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
except ModuleNotFoundError as error:
    raise ImportError("boolit.sklearn needs scikit-learn: pip install 'boolit[sklearn]'") from error

import boolit
from boolit._devices import choose_device
from boolit.nn import MLP, Activation, Pointwise
from boolit.nn.width import count_parameters, width_for_budget

__all__ = ["LogicalMLPClassifier", "LogicalMLPRegressor"]

Array = npt.NDArray[Any]
Weights: TypeAlias = "npt.ArrayLike | None"

RELU_WIDTH = 64  # the default budget is that of a ReLU network of this width
WARM_UP = 0.3  # share of the epochs in which OneCycleLR raises the learning rate; training never stops in it
MIN_BATCHES, MIN_BATCH, MAX_BATCH = 8, 64, 256
ROWS_AT_ONCE, MAX_SPEC = 8192, 200  # samples of a prediction; characters of an activation in a saved model
DTYPES = (np.float64, np.float32)
COUNT = Interval(Integral, 1, None, closed="left")


class LogicalMLP(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 (scikit-learn's name)
        "activation": [str, type, nn.Module],
        "width": [None, COUNT, list, tuple],
        "budget": [None, COUNT],
        "normalization": [StrOptions({"batch", "layer", "none"})],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 2, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "device": [str, torch.device],
        **{key: [COUNT] for key in ("hidden_layers", "max_iter", "patience")},
        **{key: ["boolean"] for key in ("early_stopping", "standardize")},
    }

    def __init__(
        self,
        activation: str | type[nn.Module] | Activation = "or_and_xnor_nail_d",
        *,
        hidden_layers: int = 2,
        width: int | Sequence[int] | None = None,
        budget: int | None = None,
        normalization: Literal["batch", "layer", "none"] = "none",
        dropout: float = 0.3,
        learning_rate: float = 5e-3,
        weight_decay: float = 1.0,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 50,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        device: str | torch.device = "cpu",
    ) -> None:
        """Store the parameters; they are checked by `fit`.

        Args:
            activation: anything that `boolit.activation` takes; each layer has its own copy.
            hidden_layers: number of hidden layers.
            width: pre-activation width of all hidden layers, or a sequence with the width of each. Defaults to the width
                that fits the budget.
            budget: number of parameters of the network. Defaults to that of a ReLU network of width 64.
            normalization: ``batch``, ``layer`` or ``none``.
            dropout: dropout probability after each activation.
            learning_rate: maximum learning rate of one cycle with AdamW; constant in ``partial_fit``.
            weight_decay: AdamW's weight decay of the weight matrices.
            batch_size: ``auto`` is an eighth of the samples, at least 64 and at most 256.
            max_iter: number of epochs.
            early_stopping: whether to stop when the validation loss no longer falls, and keep the best epoch.
            validation_fraction: share of the samples that is held out for early stopping.
            patience: epochs without a lower validation loss before training stops, after 30 % of ``max_iter`` at the earliest.
            standardize: whether the model standardizes inputs and, for regression, targets.
            random_state: an int makes the result reproducible.
            verbose: whether to print a line per epoch.
            device: where to train, such as ``cuda``; ``auto`` uses a GPU if there is one. The fitted model is on the CPU.
        """
        for name in self._get_param_names():
            setattr(self, name, locals()[name])

    @torch.enable_grad()
    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Weights = None) -> LogicalMLP:
        """Train a new network. A sample of weight 2 counts like two copies of it.

        Shape: X ``(n, features)``, y ``(n,)`` or ``(n, outputs)``, sample_weight ``(n,)``.
        """
        self._validate_params()
        self.__dict__.pop("classes_", None)
        x, targets, weight, outputs = self._encode(X, y, sample_weight, reset=True)
        random = check_random_state(self.random_state)
        training, validation = _merge(x, targets, weight), None
        if self.early_stopping:
            training, validation = _split(training, self.validation_fraction, random)
        self._begin(outputs, random, *training)
        batches, best, best_loss, waited = self._batches(len(training[0])), None, math.inf, 0
        steps = self.max_iter * batches
        schedule = optim.lr_scheduler.OneCycleLR(self._optimizer, self.learning_rate, steps, cycle_momentum=False)
        tensors, valid_tensors = self._tensors(*training), self._tensors(*validation) if validation else None
        while (n := len(self.loss_curve_)) < self.max_iter and (n < WARM_UP * self.max_iter or waited < self.patience):
            self._epoch(tensors, batches, schedule)
            if valid_tensors is not None:
                loss = self._validate(*valid_tensors)
                self.validation_losses_.append(loss)
                waited += 1
                if loss < best_loss:  # never true for NaN
                    best, best_loss, waited = {k: v.clone() for k, v in self._network.state_dict().items()}, loss, 0
            if self.verbose:
                validated = (f"validation loss {loss:.6f}" for loss in self.validation_losses_[-1:])
                print(f"epoch {n + 1}: loss {self.loss_curve_[-1]:.6f}", *validated, sep=", ")
        if valid_tensors is not None:
            if best is None:
                raise ValueError("the validation loss was never finite; lower learning_rate")
            self._network.load_state_dict(best)
        return self._finish()

    @torch.enable_grad()
    def partial_fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Weights = None) -> LogicalMLP:
        """Train one epoch more. The first call fits the standardization."""
        self._validate_params()
        *samples, outputs = self._encode(X, y, sample_weight, reset=not hasattr(self, "module_"))
        merged, random = _merge(*samples), check_random_state(self.random_state)
        if not hasattr(self, "module_"):
            self._begin(outputs, random, *merged)
        elif not hasattr(self, "_network"):  # the model was copied or loaded
            self._build(random)
            self._network.load_state_dict(self.module_.network.state_dict())
        self._epoch(self._tensors(*merged), self._batches(len(merged[0])))
        return self._finish()

    def _begin(self, outputs: int, random: np.random.RandomState, x: Array, y: Array, weight: Array) -> None:
        """Choose the widths, create the network and fit the standardization."""
        self.n_outputs_, self.widths_ = outputs, self._widths(outputs)
        self.loss_curve_: list[float] = []
        self.validation_losses_: list[float] = []
        self._build(random)
        self.module_: Any = self._module()
        scaled = {"standardize": x, "unstandardize": y} if self.standardize else {}
        for layer, values in ((getattr(self.module_, name), scaled[name]) for name in scaled if hasattr(self.module_, name)):
            scaler = StandardScaler().fit(np.asarray(values, dtype=np.float64), sample_weight=weight)
            layer.mean.copy_(torch.tensor(scaler.mean_))
            layer.scale.copy_(torch.tensor(scaler.scale_))

    def _build(self, random: np.random.RandomState) -> None:
        self._generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        shape = (self.widths_, self.n_outputs_, self.activation)
        self._network = self._mlp(*shape, generator=self._generator).to(choose_device(self.device))
        matrices, others = ([p for p in self._network.parameters() if (p.ndim > 1) == matrix] for matrix in (True, False))
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]  # biases and scales
        self._optimizer = optim.AdamW(groups, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)

    def _finish(self) -> LogicalMLP:
        self.module_.network.load_state_dict(self._network.state_dict())
        self.n_iter_ = len(self.loss_curve_)
        return self

    def _widths(self, outputs: int) -> list[int]:
        if isinstance(self.width, Sequence):
            if not self.width or not all(isinstance(width, Integral) and int(width) > 0 for width in self.width):
                raise ValueError(f"width={self.width!r} must hold positive integers")
            return [int(width) for width in self.width]
        if self.width is not None and self.budget is not None:
            raise ValueError(f"width={self.width} and budget={self.budget} exclude each other")
        activation = boolit.activation(self.activation)

        def count(width: int, spec: Activation = activation) -> int:
            with torch.device("meta"):  # needs neither memory nor random numbers
                return count_parameters(self._mlp([width] * self.hidden_layers, outputs, spec))

        budget = self.budget or count(RELU_WIDTH, Pointwise("relu"))
        return [int(self.width or width_for_budget(count, budget, activation.width_multiple))] * self.hidden_layers

    def _mlp(self, *shape: Any, generator: torch.Generator | None = None) -> MLP:
        options = {"normalization": self.normalization, "dropout": self.dropout, "generator": generator}
        return MLP(self.n_features_in_, *shape, **options)

    def _module(self) -> nn.Sequential:
        """Return the model in float64: in float32, a prediction's last digits would depend on the samples beside it."""
        with torch.random.fork_rng(devices=[]):  # the initial weights are replaced
            network = self._mlp(self.widths_, self.n_outputs_, self.activation)
        parts = OrderedDict[str, nn.Module](standardize=_Standardize(self.n_features_in_), network=network)
        if isinstance(self, RegressorMixin):
            parts["unstandardize"] = _Standardize(self.n_outputs_, inverse=True)
        return nn.Sequential(parts).double().eval()

    def _tensors(self, *samples: Array) -> tuple[Tensor, Tensor, Tensor]:
        x, y, weight = (torch.tensor(part) for part in samples)
        if isinstance(self, RegressorMixin):
            y = (y - self.module_.unstandardize.mean) / self.module_.unstandardize.scale
        y, device = y.float() if y.is_floating_point() else y, choose_device(self.device)
        return self.module_.standardize(x).float().to(device), y.to(device), (weight / weight.mean()).float().to(device)

    def _batches(self, n: int) -> int:
        if n == 1 and self.normalization == "batch":
            raise ValueError("n_samples=1 is too few for normalization='batch'")
        automatic = min(max(n // MIN_BATCHES, MIN_BATCH), MAX_BATCH)
        return int(max(1, n // (automatic if self.batch_size == "auto" else self.batch_size)))

    def _epoch(self, tensors: tuple[Tensor, Tensor, Tensor], batches: int, schedule: Any = None) -> None:
        n, device = len(tensors[0]), tensors[0].device
        self._network.train()
        total = torch.zeros((), device=device)
        for rows in torch.randperm(n, generator=self._generator).to(device).tensor_split(batches):
            x, y, weight = (part[rows] for part in tensors)
            loss = (self._loss(self._network(x), y) * weight).mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            if schedule is not None:
                schedule.step()
            total += loss.detach() * len(rows)
        mean = total.item() / n
        self.loss_curve_.append(mean)
        if not math.isfinite(mean):
            raise ValueError(f"the loss became {mean} in epoch {len(self.loss_curve_)}; lower learning_rate, or scale the data")

    @torch.no_grad()
    def _validate(self, x: Tensor, y: Tensor, weight: Tensor) -> float:
        return float((self._loss(self._network.eval()(x), y) * weight).mean())

    @torch.no_grad()
    def _outputs(self, X: npt.ArrayLike) -> Tensor:
        check_is_fitted(self)
        x = torch.tensor(validate_data(self, X, reset=False, dtype=np.float64))
        outputs = torch.cat([self.module_(piece) for piece in x.split(ROWS_AT_ONCE)])
        finite = outputs.isfinite().all(1)
        if not finite.all():
            raise ValueError(f"the prediction for sample {int((~finite).nonzero()[0])} is not finite; its values are too large")
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        unsaved = ("_network", "_optimizer", "_generator")
        state = {name: value for name, value in super().__getstate__().items() if name not in unsaved}
        if "module_" in state and isinstance(self.activation, str):
            state["weights_"] = {name: values.numpy() for name, values in state.pop("module_").state_dict().items()}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        weights = state.get("weights_")
        super().__setstate__({name: value for name, value in state.items() if name != "weights_"})
        if weights is not None:
            self.module_ = self._restore({name: torch.tensor(values) for name, values in weights.items()})

    def _restore(self, weights: Mapping[str, Tensor]) -> nn.Sequential:
        """Return the model with the weights of a file, which are checked because files may be damaged or forged."""
        if not isinstance(self.activation, str) or len(self.activation) > MAX_SPEC:
            raise ValueError(f"an activation must be a name of at most {MAX_SPEC} characters")
        if len(self.widths_) > len(weights) or sum(self.widths_) > sum(values.numel() for values in weights.values()):
            raise ValueError("the widths do not fit the weights")
        with torch.device("meta"):  # a forged size takes no memory
            module = self._module()
        for name, expected in module.state_dict().items():
            if name in weights and (weights[name].dtype != expected.dtype or not weights[name].isfinite().all()):
                raise ValueError(f"{name} is not a finite {expected.dtype} tensor")
        module.load_state_dict(weights, assign=True)
        return module


class LogicalMLPClassifier(ClassifierMixin, LogicalMLP):  # type: ignore[misc]
    """Multi-layer perceptron with logical activations for classification, trained on cross-entropy.

    Fitted attributes are ``classes_``, ``module_`` (a `torch.nn.Module` from samples to logits, in float64), ``widths_``,
    ``n_iter_``, ``loss_curve_`` and ``validation_losses_``. ``class_weight`` is ``balanced`` or has weights by class; the other
    parameters are those of `LogicalMLP`. y holds labels or, for several labels per sample, ``(n, labels)`` of 0 and 1.

    Example:
        >>> X, y = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), ["same", "differ", "differ", "same"]
        >>> model = LogicalMLPClassifier("xnor_il", dropout=0, random_state=0).fit(X, y)
        >>> list(map(str, model.predict(X))), model.predict_proba(X).shape
        (['same', 'differ', 'differ', 'same'], (4, 2))
    """

    _parameter_constraints = LogicalMLP._parameter_constraints | {"class_weight": [StrOptions({"balanced"}), dict, None]}

    def __init__(
        self,
        activation: str | type[nn.Module] | Activation = "or_and_xnor_nail_d",
        *,
        hidden_layers: int = 2,
        width: int | Sequence[int] | None = None,
        budget: int | None = None,
        normalization: Literal["batch", "layer", "none"] = "none",
        dropout: float = 0.3,
        learning_rate: float = 5e-3,
        weight_decay: float = 1.0,
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 50,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        standardize: bool = True,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        device: str | torch.device = "cpu",
    ) -> None:
        for name in self._get_param_names():
            setattr(self, name, locals()[name])

    def partial_fit(  # type: ignore[override]
        self, X: npt.ArrayLike, y: npt.ArrayLike, classes: npt.ArrayLike | None = None, sample_weight: Weights = None
    ) -> LogicalMLP:
        """Train one epoch more. The first call needs all classes and fits the standardization."""
        if not hasattr(self, "module_"):
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit")
            self.classes_ = np.unique(np.asarray(classes))
        return super().partial_fit(X, y, sample_weight)

    def _encode(self, inputs: Any, labels: Any, weight: Any, *, reset: bool) -> tuple[Array, Array, Array, int]:
        x, y = validate_data(self, inputs, labels, dtype=DTYPES, multi_output=True, reset=reset)
        check_classification_targets(y)
        weight = _check_sample_weight(weight, x, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        self._multilabel = type_of_target(y) == "multilabel-indicator"
        if self._multilabel:
            self.classes_ = np.arange(y.shape[1])
            return x, np.asarray(y, dtype=np.float64), weight, y.shape[1]
        y = column_or_1d(y, warn=True)
        if not hasattr(self, "classes_"):
            self.classes_ = np.unique(y)
        codes = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        if not np.array_equal(self.classes_[codes], y):
            raise ValueError("y holds labels that are not in classes")
        return x, codes, weight, len(self.classes_)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._multilabel:
            return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(1)
        return F.cross_entropy(outputs, targets, reduction="none")

    def decision_function(self, X: npt.ArrayLike) -> Array:
        """Return the logit of the second class for two classes, otherwise one logit per class or label."""
        outputs: Array = self._outputs(X).numpy()
        return outputs[:, 1] - outputs[:, 0] if outputs.shape[1] == 2 and not self._multilabel else outputs

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the most probable class of each sample, or 0 and 1 for each label."""
        outputs = self._outputs(X)
        return np.asarray((outputs > 0).long() if self._multilabel else self.classes_[outputs.argmax(1).numpy()])

    def predict_log_proba(self, X: npt.ArrayLike) -> Array:
        """Return the logarithm of `predict_proba`, accurate for small probabilities."""
        outputs = self._outputs(X)
        return np.asarray(F.logsigmoid(outputs) if self._multilabel else outputs.log_softmax(1))

    def predict_proba(self, X: npt.ArrayLike) -> Array:
        """Return the probability of each class, in the order of ``classes_``, or of each label."""
        return np.exp(self.predict_log_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class LogicalMLPRegressor(MultiOutputMixin, RegressorMixin, LogicalMLP):  # type: ignore[misc]
    """Multi-layer perceptron with logical activations for regression, trained on squared errors.

    Fitted attributes are ``module_`` (a `torch.nn.Module` from samples to numbers, in float64), ``widths_``, ``n_iter_``,
    ``loss_curve_`` and ``validation_losses_``. The parameters are those of `LogicalMLP`. y may have several columns.

    Example:
        >>> X = np.linspace(-1, 1, 200).reshape(-1, 1)
        >>> model = LogicalMLPRegressor(dropout=0, random_state=0).fit(X, X.ravel() ** 2)
        >>> model.score(X, X.ravel() ** 2) > 0.99
        True
    """

    def _encode(self, inputs: Any, targets: Any, weight: Any, *, reset: bool) -> tuple[Array, Array, Array, int]:
        x, y = validate_data(self, inputs, targets, dtype=DTYPES, multi_output=True, y_numeric=True, reset=reset)
        weight = _check_sample_weight(weight, x, dtype=np.float64, ensure_non_negative=True)
        y = np.asarray(y, dtype=np.float64).reshape(len(x), -1)
        return x, y, weight, y.shape[1]

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean(1)

    def predict(self, X: npt.ArrayLike) -> Array:
        """Return the predicted numbers."""
        outputs = np.asarray(self._outputs(X))
        return outputs.ravel() if outputs.shape[1] == 1 else outputs


class _Standardize(nn.Module):
    """``(x - mean) / scale`` by column, or its inverse, in float64: float32 would lose small differences of large numbers."""

    mean: Tensor
    scale: Tensor

    def __init__(self, columns: int, inverse: bool = False) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("scale", torch.ones(columns))
        self.inverse = inverse

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.mean if self.inverse else (x - self.mean) / self.scale


def _merge(x: Array, y: Array, weight: Array) -> tuple[Array, ...]:
    """Merge equal samples and add their weights, so that a weight of 2 gives the same result as two copies."""
    x, y, weight = (part[weight > 0] for part in (x, y, weight))
    rows = np.hstack([np.ascontiguousarray(part.reshape(len(x), -1)).view(np.uint8) for part in (x, y)])
    _, first, group = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return x[first], y[first], np.bincount(group, weight, len(first))


def _split(samples: tuple[Array, ...], fraction: float, random: np.random.RandomState) -> list[tuple[Array, ...]]:
    """Hold out a share of the samples, with a similar mix of targets: evenly spaced along the sorted targets."""
    n = len(samples[0])
    if n < 2:
        raise ValueError(f"n_samples={n} cannot be split for early_stopping; at least 2 distinct samples are needed")
    held = min(max(round(fraction * n), 1), n - 1)
    order = random.permutation(n)
    order = order[np.argsort(samples[1].reshape(n, -1)[order, 0], kind="stable")]
    chosen = ((np.arange(held) + 0.5) * n / held).astype(int)
    return [tuple(part[rows] for part in samples) for rows in (np.delete(order, chosen), order[chosen])]
