"""
Normalized gates keep the scale in a deep network
=================================================

How does the scale of the signal change in a random network of 30 layers without batch
normalization? The normalized gates (``nil`` and ``nail``) subtract the mean of a gate
under independent N(0, 1) inputs and divide by its standard deviation. Inputs with mean
0 and standard deviation 1 then give such outputs. The plot shows that this keeps the
scale for some gates, but not for all.
"""

# %%
# Thirty random layers
# --------------------
# The weights of every linear layer have variance 1/inputs, so the layer keeps the mean
# square of its input. Only the activation changes the scale.

import matplotlib.pyplot as plt
import torch

import boolit

WIDTH, DEPTH = 512, 30


def deviations(spec):
    """Return the standard deviation of the input and after every layer."""
    drawn = torch.Generator().manual_seed(0)
    activation = boolit.activation(spec)
    x = torch.randn(128, WIDTH, generator=drawn)
    scales = [x.std().item()]
    for _ in range(DEPTH):
        x = activation(x)
        weights = torch.randn(x.shape[-1], WIDTH, generator=drawn) / x.shape[-1] ** 0.5
        x = x @ weights
        scales.append(x.std().item())
    return scales


colors = {
    "relu": "black",
    "or_ail": "#0072B2",
    "or_nail": "#0072B2",
    "xnor_ail": "#D55E00",
    "xnor_nail": "#D55E00",
    "or_and_xnor_nail_d": "#6B2680",
    "xnor_nil": "#009E73",
}
signal = {spec: deviations(spec) for spec in colors}

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for spec, color in colors.items():
    ax.plot(
        signal[spec],
        color=color,
        linestyle="--" if "nail" in spec else ":" if "nil" in spec else "-",
        label=spec,
    )
ax.set(yscale="log", xlabel="layer", ylabel="standard deviation of the signal")
ax.legend(fontsize=8)

for spec, scales in signal.items():
    print(f"{spec:18} after {DEPTH} layers: {scales[-1]:.3g}")

# %%
# ReLU and the plain gates change the scale by a nearly constant factor per layer, so
# after many layers the signal has vanished or exploded. (For ReLU the usual remedy is
# to double the variance of the weights.) ``xnor_nail`` and the ensemble keep the scale.
# ``or_nail`` alone drifts slowly: once the scale is slightly off, the mean of the gate
# is no longer the constant that is subtracted.

assert all(0.5 < signal[spec][-1] < 2 for spec in ("xnor_nail", "or_and_xnor_nail_d"))
assert signal["relu"][-1] < 1e-3
assert signal["or_ail"][-1] > 10
assert signal["or_nail"][-1] < signal["or_ail"][-1] / 10

# %%
# Why the exact XNOR does not keep the scale
# ------------------------------------------
# By chance, the scale after some layer is slightly off. Doubling the logits doubles the
# output of an approximate gate, so the error stays as it is. The exact XNOR of small
# logits is nearly their product, so doubling them more than doubles the output, and
# the error grows from layer to layer. In a deep network use ``xnor_nail`` or a
# normalization layer.

x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(1))
approximate, exact = boolit.functional.xnor_ail, boolit.functional.xnor_il
assert torch.allclose(approximate(2 * x), 2 * approximate(x))
growth = (exact(2 * x).std() / exact(x).std()).item()
print(f"XNOR_IL of twice the logits has {growth:.2f} times the standard deviation")
assert exact(2 * x).std() > 2.2 * exact(x).std()
assert signal["xnor_nil"][-1] > 10

# %%
# The constants
# -------------
# They are in ``boolit.logic.moments``, and a large sample agrees.

mean, sd = boolit.logic.moments("or", "ail", 2)
sample = boolit.functional.or_ail(
    torch.randn(1000, 2000, generator=torch.Generator().manual_seed(1))
)
print(f"OR_AIL: mean {mean:.4f}, of a sample {sample.mean():.4f}")
print(f"OR_AIL: sd {sd:.4f}, of a sample {sample.std():.4f}")
assert abs(sample.mean().item() - mean) < 0.01
assert abs(sample.std().item() - sd) < 0.01
