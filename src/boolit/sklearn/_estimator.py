"""What the classifier and the regressor share: the parameters, fitting, and the network's outputs."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

import boolit
from boolit.nn import Activation
from boolit.sklearn._network import Affine, build, finished, width_for
from boolit.sklearn._samples import Array, Samples, distinct, scaling, split
from boolit.sklearn._tasks import Task
from boolit.sklearn._training import Recipe, Tensors, train

FEWEST_BATCHES, SMALLEST_BATCH, LARGEST_BATCH = 8, 64, 256
ROWS_AT_ONCE = 8192
DTYPES = (np.float64, np.float32)


class LogicalMLP(BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron by its parameters; see docs/sklearn.md for what each means."""

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
    ) -> None:
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

    def _fit(self, task: Task, x: Array, y: Array, sample_weight: npt.ArrayLike | None, outputs: int) -> None:
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
        training, validation = distinct(Samples(x, y, weight)), None
        drawn = check_random_state(self.random_state)
        if self.early_stopping:
            training, validation = split(training, self.validation_fraction, drawn)
        generator = torch.Generator().manual_seed(int(drawn.randint(2**31 - 1)))
        network = self._network(outputs, generator)
        before, after = self._ends(task, training)
        history = train(
            network,
            task,
            _tensors(training, task, before, after),
            None if validation is None else _tensors(validation, task, before, after),
            self._recipe(len(training.x)),
            generator,
        )
        self.module_ = finished(before, network, after and after.inverse())
        self.n_iter_, self.loss_curve_ = len(history.losses), history.losses
        self.validation_scores_ = history.validation_scores if self.early_stopping else None

    def _network(self, outputs: int, generator: torch.Generator) -> nn.Sequential:
        inputs, depth, activation = self.n_features_in_, self.hidden_layers, boolit.activation(self.activation)
        normalised = self.normalisation != "none"
        self.width_ = self.width or width_for(self.budget, inputs, outputs, depth, activation, normalised)
        return build(inputs, [self.width_] * depth, outputs, activation, self.normalisation, self.dropout, generator)

    def _ends(self, task: Task, training: Samples) -> tuple[Affine | None, Affine | None]:
        """What standardises the inputs, and the targets if they are numbers."""
        if not self.standardise:
            return None, None
        before = _standardiser(training.x, training.weight)
        return before, _standardiser(training.y, training.weight) if task.numeric else None

    def _recipe(self, n: int) -> Recipe:
        if n == 1 and self.normalisation == "batch":
            raise ValueError("n_samples=1 is too few for normalisation='batch'; use 'layer' or 'none'")
        automatic = min(max(n // FEWEST_BATCHES, SMALLEST_BATCH), LARGEST_BATCH)
        batch_size = automatic if self.batch_size == "auto" else self.batch_size
        return Recipe(self.learning_rate, self.weight_decay, batch_size, self.max_iter, self.patience, bool(self.verbose))

    @torch.no_grad()
    def _outputs(self, X: npt.ArrayLike) -> Tensor:  # noqa: N803
        """What the network gives for each sample.

        Shape: ``(n, features)`` to ``(n, outputs)``, float64.
        """
        check_is_fitted(self)
        x = torch.tensor(validate_data(self, X, reset=False, dtype=np.float64))
        return torch.cat([self.module_(piece) for piece in x.split(ROWS_AT_ONCE)])


def _standardiser(values: Array, weight: Array) -> Affine:
    mean, deviation = scaling(values, weight)
    return Affine(torch.tensor(mean), torch.tensor(1 / deviation))


def _tensors(samples: Samples, task: Task, before: Affine | None, after: Affine | None) -> Tensors:
    x, y, weight = (torch.tensor(part) for part in samples)
    x, y = before(x) if before else x, after(y) if after else y
    return Tensors(x.float(), y.float() if task.numeric else y, (weight / weight.mean()).float())
