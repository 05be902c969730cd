"""Multi-layer perceptrons with logical activations as scikit-learn estimators.

Example:
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LogicalMLPClassifier(random_state=0).fit(X, y).score(X, y) > 0.95
    True
"""

try:
    from boolit.sklearn._estimators import LogicalMLPClassifier, LogicalMLPRegressor
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise ImportError("boolit.sklearn needs scikit-learn: pip install 'boolit[sklearn]'") from None

__all__ = ["LogicalMLPClassifier", "LogicalMLPRegressor"]
