"""
A scikit-learn estimator in a pipeline
======================================

``LogicalMLPClassifier`` is a scikit-learn classifier whose hidden layers can have any
activation of boolit. By default every network has about as many parameters as a ReLU
network of width 64, so scores compare networks of equal size.
"""

# %%
# A pipeline
# ----------
# The digits that ship with scikit-learn, 8×8 pixels each, reduced to 24 principal
# components.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline

from boolit.sklearn import LogicalMLPClassifier

torch.set_num_threads(1)  # networks this small are faster without threads
X, y = load_digits(return_X_y=True)
X, y = X[:600], y[:600]


def pipeline(activation):
    return make_pipeline(
        PCA(24, random_state=0),
        LogicalMLPClassifier(activation, max_iter=15, random_state=0),
    )


X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=200, stratify=y, random_state=0
)
model = pipeline("or_and_xnor_nail_d").fit(X_train, y_train)
print(f"{model.score(X_test, y_test):.1%} of {len(y_test)} new digits are right")
assert model.score(X_test, y_test) > 0.85
assert model.predict_proba(X_test).shape == (200, 10)

# %%
# Cross-validation
# ----------------
# The same folds for every activation, so that scores can be compared fold by fold.

folds = StratifiedKFold(4, shuffle=True, random_state=0)
activations = ["relu", "or_ail", "xnor_ail", "or_and_xnor_nail_d"]
scores = {
    name: 100 * cross_val_score(pipeline(name), X, y, cv=folds) for name in activations
}

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for place, name in enumerate(activations):
    ax.plot(scores[name], [place] * len(scores[name]), "o", alpha=0.6)
    ax.plot(scores[name].mean(), place, "k|", markersize=18)
ax.set(
    yticks=range(len(activations)),
    yticklabels=activations,
    xlabel="accuracy of each fold (%), and the mean",
)
ax.invert_yaxis()

# %%
# What the differences are worth
# ------------------------------
# Four folds that share most of their rows are not four experiments. Look at the
# differences fold by fold before believing a mean, and use ``boolit compare`` when it
# matters: it corrects for the overlap.

for name in activations[1:]:
    difference = scores[name] - scores["relu"]
    mean, by_fold = difference.mean(), np.round(difference, 1)
    print(f"{name:18} minus relu: mean {mean:+.1f} points, by fold {by_fold}")
