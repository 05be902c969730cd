"""
Read a store and make a plot of your own
========================================

``boolit run`` and ``boolit compare`` keep every finished run in a store, one file in
the output folder. The report shows the usual things; for anything else, read the
records. This example needs the lab: ``pip install 'boolit[lab]'``.
"""

# %%
# A small study to have a store
# -----------------------------
# The study ``xor`` ships with boolit. On the command line this is ``boolit run xor
# --seeds 12 --out FOLDER``.

import tempfile
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt

from boolit.lab import Store, compare_scores, execute_plan, load_study, plan, scores

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name) / "xor"
with Store(folder) as store:
    summary = execute_plan(plan(load_study("xor"), seeds=12), store, progress=False)
print(summary.trained, "runs trained")
assert summary.complete

# %%
# Records
# -------
# Each record has the run's configuration, its final metrics, its curves by epoch, and
# how long it took.

with Store(folder, create=False) as store:
    records = store.records()
first = records[0]
print(
    first.config.activation,
    first.config.seed,
    first.config.parameters,
    dict(first.metrics),
)

curves = defaultdict(list)
for record in records:
    curves[record.config.activation].append(record.history["test_accuracy"])

# %%
# A plot of your own
# ------------------
# Test accuracy by epoch, every seed a line.

figure, axes = plt.subplots(
    1, len(curves), figsize=(8, 2.8), sharey=True, layout="constrained"
)
for ax, (name, own) in zip(axes, curves.items(), strict=True):
    for curve in own:
        ax.plot(
            range(1, len(curve) + 1),
            [100 * value for value in curve],
            alpha=0.5,
            linewidth=1,
        )
    ax.set(title=name, xlabel="epoch")
axes[0].set_ylabel("test accuracy (%)")

# %%
# A table of your own
# -------------------
# Scores by activation, and the study's comparison: the best against each of the others,
# with the interval of the difference.

found = compare_scores(scores(records, "test_accuracy"), first.config.metric)
print(f"{'activation':12} {'mean':>6} {'best − this [95 %]':>24}")
print(f"{found.best.activation:12} {found.best.mean:6.1%}")
for test in found.tests:
    low, high = test.interval
    print(
        f"{test.other.activation:12} {test.other.mean:6.1%}",
        f"{test.difference:10.1%} [{low:.1%}, {high:.1%}]",
    )

# %%
# ``boolit export FOLDER`` writes the same runs as CSV, Parquet or JSON, for other
# programs.

temporary.cleanup()
