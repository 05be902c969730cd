"""The regressor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from boolit.sklearn._estimator import DTYPES, LogicalMLP
from boolit.sklearn._samples import Array
from boolit.sklearn._settings import check_settings
from boolit.sklearn._tasks import REGRESSION


class LogicalMLPRegressor(MultiOutputMixin, RegressorMixin, LogicalMLP):  # type: ignore[misc]
    """A multi-layer perceptron with logical activations that predicts numbers, trained on squared errors.

    Shape: X ``(n, features)``, y ``(n,)`` or ``(n, targets)``; predictions as y.

    Example:
        >>> X = np.linspace(-1, 1, 200).reshape(-1, 1)
        >>> LogicalMLPRegressor(dropout=0, random_state=0).fit(X, X.ravel() ** 2).score(X, X.ravel() ** 2) > 0.99
        True
    """

    def fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
    ) -> LogicalMLPRegressor:
        """Trains a new network; a sample of weight 2 counts as one given twice."""
        check_settings(self.get_params())
        x, targets = validate_data(self, X, y, dtype=DTYPES, multi_output=True, y_numeric=True)
        columns = np.asarray(targets, dtype=np.float64).reshape(len(x), -1)
        self._fit(REGRESSION, x, columns, sample_weight, columns.shape[1])
        return self

    def predict(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The predicted numbers; one target gives a flat array."""
        outputs: Array = self._outputs(X).numpy()
        return outputs.ravel() if outputs.shape[1] == 1 else outputs
