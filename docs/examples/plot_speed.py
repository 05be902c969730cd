"""
How fast, on this machine?
==========================

This example measures the time of each activation, forward and backward, relative to
ReLU on a tensor of the same shape. The numbers come from the machine that built this
page, which may have been busy. Run the example or ``boolit bench`` to get yours.
"""

# %%
# Measuring
# ---------
# Every round times every activation, so that all of them run under the same conditions.
# The smallest time counts, because other programs can only add to it.

import time

import matplotlib.pyplot as plt
import torch

import boolit
from boolit.logic import cpu

torch.set_num_threads(1)
x = torch.randn(512, 1024, requires_grad=True)
modules = {"relu": torch.nn.ReLU(), "silu": torch.nn.SiLU(), "tanh": torch.nn.Tanh()}
modules |= {
    spec: boolit.activation(spec)
    for spec in ("or_ail", "xnor_ail", "or_and_xnor_ail_d", "or_il", "xnor_il")
}
with torch.no_grad():
    gradients = {name: torch.ones_like(module(x)) for name, module in modules.items()}


def measure(name):
    started = time.perf_counter()
    modules[name](x).backward(gradients[name])
    elapsed = time.perf_counter() - started
    x.grad = None
    return elapsed


best = dict.fromkeys(modules, float("inf"))
for _ in range(25):
    for name in modules:
        best[name] = min(best[name], measure(name))

# %%
# As ratios
# ---------

ratios = {name: seconds / best["relu"] for name, seconds in best.items()}
figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.barh(list(ratios), list(ratios.values()), color=["grey"] * 3 + ["#0072B2"] * 5)
ax.axvline(1, color="black", linewidth=1)
ax.set_xlabel("time, forward and backward, relative to ReLU")
ax.invert_yaxis()
for name, ratio in ratios.items():
    print(f"{name:18} {ratio:.2f}")

# %%
# ``boolit doctor`` shows whether the compiled kernels are active, and so does this:

status = cpu.status()
print("kernels:", status.instructions if status.active else "none, pure PyTorch")
