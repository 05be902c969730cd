"""
Several gates at once: duplicate or partition
=============================================

An ensemble puts several gates side by side on one tensor. With duplication (``_d``)
every gate reads all channels, so more channels come out. With partition (``_p``) each
gate reads its share of the channels, and as many come out as of a single gate.
"""

# %%
# How many channels come out
# --------------------------
# ``out_features`` is the number of inputs of the next layer. A width must be a multiple
# of ``width_multiple``.

import matplotlib.pyplot as plt
import torch

import boolit

specs = [
    "relu",
    "or_ail",
    "or_and_ail_d",
    "or_xnor_ail_p",
    "or_and_xnor_ail_p",
    "or_and_xnor_ail_d",
]
width = 48
modules = {spec: boolit.activation(spec) for spec in specs}
for spec, module in modules.items():
    into, out = module.channels
    print(
        f"{spec:18} {into}→{out}, width a multiple of {module.width_multiple}:",
        f"{width} channels in, {module.out_features(width)} out",
    )
    assert module(torch.zeros(1, width)).shape[-1] == module.out_features(width)

figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.barh(
    specs, [module.out_features(width) for module in modules.values()], color="#0072B2"
)
ax.axvline(width, color="black", linewidth=1, linestyle="--")
ax.set_xlabel(f"channels out of {width} channels in")
ax.invert_yaxis()

# %%
# What comes out
# --------------
# Duplication gives the results of one gate after the other: first OR of all pairs, then
# AND, then XNOR. Partition splits the channels into as many shares as there are gates,
# and gives the result of one gate for each share.

x = torch.randn(1, 12, generator=torch.Generator().manual_seed(0))
duplicated, partitioned = (
    boolit.activation("or_and_xnor_ail_d")(x),
    boolit.activation("or_and_xnor_ail_p")(x),
)

gates = [boolit.activation(f"{op}_ail") for op in ("or", "and", "xnor")]
assert torch.equal(duplicated, torch.cat([gate(x) for gate in gates], dim=-1))
assert torch.equal(
    partitioned,
    torch.cat(
        [gate(share) for gate, share in zip(gates, x.chunk(3, dim=-1), strict=True)],
        dim=-1,
    ),
)

figure, axes = plt.subplots(3, 1, figsize=(7, 4), layout="constrained")
colors = ["#0072B2", "#009E73", "#D55E00"]
drawn = [
    ("12 channels in", x, 12),
    ("duplicated: 18 out", duplicated, 6),
    ("partitioned: 6 out", partitioned, 2),
]
for ax, (title, values, share) in zip(axes, drawn, strict=True):
    shades = (
        ["grey"] * 12
        if share == 12
        else [color for color in colors for _ in range(share)]
    )
    ax.bar(range(values.shape[-1]), values[0], color=shades)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(title=title, xlim=(-0.7, 17.7), xticks=[])
axes[1].legend(
    handles=[plt.Rectangle((0, 0), 1, 1, color=c) for c in colors],
    labels=["OR", "AND", "XNOR"],
    ncols=3,
    fontsize=8,
)

# %%
# At equal widths the numbers of parameters differ. A fair comparison changes the widths
# instead, as ``boolit compare`` and :doc:`convert <plot_convert>` do.

for spec, module in modules.items():
    net = torch.nn.Sequential(
        torch.nn.Linear(10, width),
        module,
        torch.nn.Linear(module.out_features(width), 3),
    )
    print(f"{spec:18} {sum(p.numel() for p in net.parameters())} parameters")
