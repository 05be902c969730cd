"""
Swap the activations of a model you have
========================================

``boolit.nn.convert`` copies a model, replaces its activations and resizes the layers
around them, since a gate may turn two channels into one. It returns a ``Conversion``
whose ``model`` is the new network. Printing the ``Conversion`` shows what was changed.
"""

# %%
# A small network for pictures
# ----------------------------

import matplotlib.pyplot as plt
import torch
from torch import nn

from boolit.nn import convert

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(64 * 4, 10),
)

# %%
# Keep the widths, or keep the parameters
# ---------------------------------------
# ``budget="width"`` (the default) keeps the width before each activation, so most
# layers keep their weights. ``budget="params"`` keeps the number of parameters, which a
# fair comparison needs.

conversion = convert(model, "or_and_xnor_nail_d", budget="params")
print(conversion)

# %%
# The new model is called like the old one.

pictures = torch.randn(8, 1, 14, 14)
assert conversion.model(pictures).shape == model(pictures).shape
conversion.model(pictures).sum().backward()
print(sum(isinstance(layer, nn.ReLU) for layer in model), "ReLUs in the original")

# %%
# How many parameters there are
# -----------------------------
# With the same widths a 2→1 gate makes a network smaller and a 2→3 ensemble larger.
# With ``budget="params"`` all networks have nearly the same number of parameters.

specs = ["or_ail", "max_min_d", "or_xnor_ail_d", "or_and_xnor_nail_d"]
counts = {
    budget: [convert(model, spec, budget=budget).parameters[1] for spec in specs]
    for budget in ("width", "params")
}
before = conversion.parameters[0]

figure, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
for shift, (budget, parameters) in zip((-0.2, 0.2), counts.items(), strict=True):
    ax.barh(
        [place + shift for place in range(len(specs))],
        parameters,
        height=0.36,
        label=f'budget="{budget}"',
    )
ax.axvline(before, color="black", linestyle="--", linewidth=1, label="the ReLU network")
ax.set(yticks=range(len(specs)), yticklabels=specs, xlabel="parameters")
ax.invert_yaxis()
ax.legend(fontsize=8)

assert all(abs(count / before - 1) < 0.02 for count in counts["params"])
