"""The classifier."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from boolit.sklearn._estimator import DTYPES, LogicalMLP
from boolit.sklearn._samples import Array
from boolit.sklearn._settings import check_settings
from boolit.sklearn._tasks import CLASSIFICATION


class LogicalMLPClassifier(ClassifierMixin, LogicalMLP):  # type: ignore[misc]
    """A multi-layer perceptron with logical activations that tells classes apart, trained on cross-entropy.

    Shape: X ``(n, features)``, y ``(n,)`` of any labels, probabilities ``(n, classes)``.

    Example:
        >>> X, y = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), ["same", "differ", "differ", "same"]
        >>> model = LogicalMLPClassifier("xnor_il", dropout=0, random_state=0).fit(X, y)
        >>> list(map(str, model.predict(X)))
        ['same', 'differ', 'differ', 'same']
    """

    def fit(
        self,
        X: npt.ArrayLike,  # noqa: N803
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
    ) -> LogicalMLPClassifier:
        """Trains a new network; a sample of weight 2 counts as one given twice."""
        check_settings(self.get_params())
        x, labels = validate_data(self, X, y, dtype=DTYPES)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._fit(CLASSIFICATION, x, codes, sample_weight, len(self.classes_))
        return self

    def predict(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The most probable class of each sample."""
        best = self._outputs(X).argmax(1).numpy()
        predicted: Array = self.classes_[best]
        return predicted

    def predict_proba(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The probability of each class, in the order of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: npt.ArrayLike) -> Array:  # noqa: N803
        """The logarithm of each class's probability, accurate for improbable ones too."""
        logarithms: Array = self._outputs(X).log_softmax(1).numpy()
        return logarithms
