"""
Gates as surfaces: what AIL approximates
========================================

A logit x stands for an event of probability sigmoid(x). AND, OR and XNOR of two
independent events are smooth surfaces over the two logits (the exact form, ``il``). The
approximate form, ``ail``, replaces each by a few planes, which need no exponential.
"""

# %%
# Values on a grid
# ----------------
# ``boolit.combine`` takes separate tensors and broadcasts them, which is what a grid
# needs. The colors of the first two columns reach from −12 (blue) to 12 (red). The
# black line is where a gate changes its sign.

import math

import matplotlib.pyplot as plt
import torch

import boolit

axis = torch.linspace(-6, 6, 121)
surfaces = {
    (op, form): boolit.combine(op, axis[None, :], axis[:, None], form=form)
    for op in ("and", "or", "xnor")
    for form in ("il", "ail")
}

figure, axes = plt.subplots(
    3, 3, figsize=(7.5, 7.5), sharex=True, sharey=True, layout="constrained"
)
for row, op in zip(axes, ("and", "or", "xnor"), strict=True):
    exact, approximate = surfaces[op, "il"], surfaces[op, "ail"]
    drawn = {
        "exact": exact,
        "approximate": approximate,
        "approximate − exact": approximate - exact,
    }
    for ax, (title, values) in zip(row, drawn.items(), strict=True):
        limit = 1.1 if "−" in title else 12
        image = ax.imshow(
            values,
            origin="lower",
            extent=(-6, 6, -6, 6),
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        ax.contour(axis, axis, values, levels=[0], colors="black", linewidths=0.8)
        ax.set_title(f"{op.upper()}, {title}", fontsize=9)
    figure.colorbar(image, ax=row[2])
for ax in axes[-1]:
    ax.set_xlabel("x")
for ax in axes[:, 0]:
    ax.set_ylabel("y")

# %%
# How far apart the two forms are
# -------------------------------
# For AND and OR the difference is largest at the origin, where it is ln 3. For XNOR it
# stays below ln 2. Away from the lines where the planes meet, the two forms agree.

largest = {
    op: (surfaces[op, "ail"] - surfaces[op, "il"]).abs().max().item()
    for op in ("and", "or", "xnor")
}
print({op: round(value, 4) for op, value in largest.items()})
for op in ("and", "or"):
    origin = boolit.combine(
        op, torch.zeros(()), torch.zeros(()), form="il"
    )  # the approximate one is 0 there
    assert math.isclose(largest[op], math.log(3), rel_tol=1e-5)
    assert math.isclose(abs(origin.item()), math.log(3), rel_tol=1e-5)
assert largest["xnor"] < math.log(2)

# %%
# XNOR is different
# -----------------
# AND is positive in one corner and OR is negative in one. XNOR is positive in two
# opposite corners, which no line separates from the other two. Networks with XNOR use
# this to learn :doc:`parity <plot_parity>`. XNOR is also the only one of the three
# whose approximate form has the right sign everywhere.

exact, approximate = surfaces["xnor", "il"], surfaces["xnor", "ail"]
assert torch.equal(exact.sign(), approximate.sign())
print(
    "points where the approximate AND has the other sign:",
    (surfaces["and", "il"].sign() != surfaces["and", "ail"].sign()).sum().item(),
)
