"""
Plot the runs of a study yourself
=================================

``boolit run`` and ``boolit compare`` keep every finished run in a store. The report
shows the usual charts; for anything else, read the store as a DataFrame. This example
needs the lab.
"""

# %%
# Train a small study
# -------------------
# The study ``xor`` ships with boolit. On the command line this is ``boolit run xor
# --seeds 12 --out FOLDER``.

import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt

from boolit.lab import (
    Metric,
    Store,
    compare_runs,
    execute_plan,
    load_study,
    plan,
    verdict,
)

temporary = tempfile.TemporaryDirectory()
store = Store(Path(temporary.name) / "xor")
execute_plan(plan(load_study("xor"), seeds=12), store, progress=False)

# %%
# One row per run
# ---------------

frame = store.frame()
print(frame.groupby("activation")["test_accuracy"].describe().round(3))

# %%
# Learning curves
# ---------------

curves = store.curves()
curves = curves[curves["metric"] == "test_accuracy"].merge(
    frame[["key", "activation"]], on="key"
)
activations = curves["activation"].unique()
figure, axes = plt.subplots(
    1, len(activations), figsize=(8, 2.8), sharey=True, layout="constrained"
)
for ax, name in zip(axes, activations, strict=True):
    runs = curves[curves["activation"] == name].pivot(
        index="epoch", columns="key", values="value"
    )
    ax.plot(runs.index, 100 * runs, alpha=0.5, linewidth=1)
    ax.set(title=name, xlabel="epoch")
axes[0].set_ylabel("test accuracy (%)")

# %%
# The comparison in words
# -----------------------

for comparison in compare_runs(frame, Metric(name="accuracy")):
    print(textwrap.fill(verdict(comparison), 80))

store.close()
temporary.cleanup()
