"""
Normalised gates keep the scale in a deep network
=================================================

A random network of 30 layers, without batch normalisation: what happens to the size of
the signal on its way? The normalised gates (``nil`` and ``nail``) subtract the mean and
divide by the standard deviation that a gate has under independent N(0,1) inputs. So
where the inputs of a layer have mean 0 and standard deviation 1, so have its outputs.
That is enough for some gates and not for others, as the plot shows.
"""

# %%
# Thirty random layers
# --------------------
# Every linear layer has random weights of variance 1/inputs, so that it keeps the mean
# square of what it gets. What changes the scale is the activation.

import matplotlib.pyplot as plt
import torch

import boolit

WIDTH, DEPTH = 512, 30


def deviations(spec):
    """The standard deviation of the signal at first and after every layer."""
    drawn = torch.Generator().manual_seed(0)
    activation = boolit.activation(spec)
    x = torch.randn(128, WIDTH, generator=drawn)
    found = [x.std().item()]
    for _ in range(DEPTH):
        x = activation(x)
        weights = torch.randn(x.shape[-1], WIDTH, generator=drawn) / x.shape[-1] ** 0.5
        x = x @ weights
        found.append(x.std().item())
    return found


colours = {
    "relu": "black",
    "or_ail": "#0072B2",
    "or_nail": "#0072B2",
    "xnor_ail": "#D55E00",
    "xnor_nail": "#D55E00",
    "or_and_xnor_nail_d": "#6B2680",
    "xnor_nil": "#009E73",
}
signal = {spec: deviations(spec) for spec in colours}

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for spec, colour in colours.items():
    ax.plot(
        signal[spec],
        color=colour,
        linestyle="--" if "nail" in spec else ":" if "nil" in spec else "-",
        label=spec,
    )
ax.set(yscale="log", xlabel="layer", ylabel="standard deviation of the signal")
ax.legend(fontsize=8)

for spec, own in signal.items():
    print(f"{spec:18} after {DEPTH} layers: {own[-1]:.3g}")

# %%
# ReLU and the plain gates shrink or grow the signal by a nearly constant factor a
# layer, so after many layers it is gone or immense. (With ReLU one doubles the variance
# of the weights instead.) ``xnor_nail`` and the ensemble keep it. A lone ``or_nail``
# drifts, slowly: when chance has made the scale a little wrong, its mean is no longer
# the one that is subtracted.

assert all(0.5 < signal[spec][-1] < 2 for spec in ("xnor_nail", "or_and_xnor_nail_d"))
assert signal["relu"][-1] < 1e-3
assert signal["or_ail"][-1] > 10
assert signal["or_nail"][-1] < signal["or_ail"][-1] / 10

# %%
# Why the exact XNOR does not
# ---------------------------
# Chance makes the signal of some layer a little larger or smaller than 1. An
# approximate gate of twice the logits is twice the gate, so such an error stays what it
# is. The exact XNOR of small logits is nearly their product: of twice the logits it is
# more than twice as large, and the error grows from layer to layer. In a deep network
# use ``xnor_nail``, or a normalisation layer.

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
