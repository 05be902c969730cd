"""Find columns that should not be features: identifiers, constants, and columns that give the target away."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from boolit.tables.preparation import as_text, parse, recognize

MOSTLY_DISTINCT = 0.5  # texts that differ in more than this share of the rows are names, not categories
DENSE = 2  # unique integers within this many times the number of rows are taken for row numbers
ID_NAME = re.compile(r"(?i)(^|[^a-z])(id|uuid|guid|key|index|idx|nr|no)([^a-z]|$)")
LEAK_SCORE = 0.97
LEAK_ROWS, LEAK_FOLDS, LEAVES = 3000, 3, 8  # eight leaves are a tree of depth 3


def unused_columns(frame: pd.DataFrame, levels: int, keep: Collection[str] = ()) -> dict[str, str]:
    """Return the columns that cannot become a useful feature, with the reason.

    A column with at most ``levels`` categories is always useful.
    """
    reasons = {name: _reason(name, frame[name], levels) for name in frame.columns if name not in keep}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(name: str, values: pd.Series[Any], levels: int) -> str | None:
    column = recognize(name, values)
    if column.kind == "empty":
        return "empty"
    if column.kind == "category":
        texts = as_text(values)
        known, distinct = int(texts.notna().sum()), texts.nunique()
        if distinct > max(levels, MOSTLY_DISTINCT * known):
            return f"{distinct:,} different texts in {known:,} rows, like names"
        return "constant" if distinct == 1 and known == len(texts) else None
    numbers = parse(values, column.kind, column.format)
    if np.isnan(numbers).any():
        return None
    if (numbers == numbers[0]).all():
        return "constant"
    return "unique in every row, like an ID" if column.kind == "number" and _is_id(name, numbers) else None


def _is_id(name: str, numbers: npt.NDArray[np.float64]) -> bool:
    if not (numbers == np.floor(numbers)).all() or len(np.unique(numbers)) < len(numbers):
        return False
    sorted_rows = len(np.unique(np.sign(np.diff(numbers)))) < 2
    return sorted_rows or bool(np.ptp(numbers) < DENSE * len(numbers)) or ID_NAME.search(name) is not None


def leaks(frame: pd.DataFrame, target: npt.NDArray[Any], regression: bool) -> Mapping[str, float]:
    """Return the columns that alone predict the target almost perfectly, with the score of a small decision tree.

    The score is the cross-validated R² or balanced accuracy on a sample of the rows.
    """
    rows = np.random.default_rng(0).permutation(len(frame))[:LEAK_ROWS]
    y = target[rows]
    if not regression:  # every class needs a row in each fold
        labels, counts = np.unique(y, return_counts=True)
        rows = rows[np.isin(y, labels[counts >= LEAK_FOLDS])]
        y = target[rows]
    if len(np.unique(y)) < 2 or len(y) < 5 * LEAK_FOLDS:
        return {}
    scores = {}
    for name in frame.columns:
        values = frame[name].iloc[rows]
        column = recognize(name, values)
        if column.kind in ("empty", "category"):
            x = pd.factorize(as_text(values))[0].astype(np.float64)
        else:
            x = parse(values, column.kind, column.format)
        leaves = 4 * LEAVES if regression else max(LEAVES, 2 * len(np.unique(y)))
        tree = (DecisionTreeRegressor if regression else DecisionTreeClassifier)(max_leaf_nodes=leaves, random_state=0)
        scoring = "r2" if regression else "balanced_accuracy"
        scores[name] = float(cross_val_score(tree, x.reshape(-1, 1), y, cv=LEAK_FOLDS, scoring=scoring).mean())
    return {name: score for name, score in scores.items() if score >= LEAK_SCORE}
