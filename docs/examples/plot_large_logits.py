"""
Exact gates at large logits
===========================

The obvious way to write AND in logit space goes through probabilities: sigmoid,
product, logit. In float32, probabilities close to 1 are rounded to 1, so they must be
clamped. Where the clamp is active, value and gradient are wrong. boolit's exact gates
never leave logit space.
"""

# %%
# Two ways to write AND
# ---------------------

import math

import matplotlib.pyplot as plt
import torch

import boolit


def clamped_and(x, y, smallest=1e-7):
    p = (torch.sigmoid(x) * torch.sigmoid(y)).clamp(smallest, 1 - smallest)
    return torch.log(p) - torch.log1p(-p)


def exact_and(x, y):
    return boolit.combine("and", x, y, form="il")


# %%
# Value and gradient
# ------------------
# The dotted line is AND(x, x) = −log(2e\ :sup:`−x` + e\ :sup:`−2x`) in float64. Where
# the clamp is active the gradient is 0, so training cannot correct a unit that is very
# sure and wrong.

logits = torch.linspace(-40, 40, 401)
wide = logits.double()
truth = -torch.logaddexp(-wide + math.log(2), -2 * wide)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
gradients = {}
for name, function, color in (
    ("clamped", clamped_and, "#D55E00"),
    ("boolit, exact", exact_and, "#0072B2"),
):
    x = logits.clone().requires_grad_()
    value = function(x, logits)
    value.sum().backward()
    gradients[name] = x.grad
    left.plot(logits, value.detach(), color=color, label=name, linewidth=2)
    right.plot(logits, x.grad, color=color, label=name, linewidth=2)
left.plot(logits, truth, color="black", linestyle=":", label="truth", linewidth=1.5)
left.set(xlabel="x", title="AND(x, x) in 32 bits")
right.set(xlabel="x", title="∂AND(x, y)/∂x at y = x")
left.legend()
right.legend()

# %%
# In numbers
# ----------

error = (exact_and(logits, logits).double() - truth).abs() / truth.abs().clamp(min=1)
round_off = torch.finfo(torch.float32).eps / 2
print(f"largest error of the exact gate: {error.max():.1e}; float32's: {round_off:.1e}")
assert error.max() < 1e-6
far = logits < -17
clamped = clamped_and(logits, logits)[0]
print(f"clamped at x = -40: {clamped:.1f} instead of {truth[0]:.1f}")
assert (gradients["clamped"][far] == 0).all()
assert (gradients["boolit, exact"][far] > 0.9).all()
