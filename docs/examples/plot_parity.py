"""
XNOR learns a parity that ReLU does not
=======================================

The class of a sample is the parity of the signs of four inputs: 1 if an even number of
them is positive. A network of XNOR gates can compute it with very few parameters. Here
two small networks of about equal size, one with ReLU and one with ``xnor_ail``, are
trained from six seeds each.
"""

# %%
# Data
# ----

import matplotlib.pyplot as plt
import torch
from torch import nn

import boolit

torch.set_num_threads(1)  # tensors this small are faster without threads
torch.manual_seed(0)
x = torch.randn(2048, 4)
y = ((x > 0).sum(1) % 2 == 0).float()
x_train, x_test, y_train, y_test = x[:1024], x[1024:], y[:1024], y[1024:]

# %%
# Two networks
# ------------
# ``xnor_ail`` reads two channels and gives one, so the layer after it has half as many
# inputs. That leaves room for wider layers at the same number of parameters.


def network(spec, width):
    first, second = boolit.activation(spec), boolit.activation(spec)
    return nn.Sequential(
        nn.Linear(4, width),
        first,
        nn.Linear(first.out_features(width), width),
        second,
        nn.Linear(second.out_features(width), 1),
    )


sizes = {"relu": 6, "xnor_ail": 8}
for spec, width in sizes.items():
    print(spec, sum(p.numel() for p in network(spec, width).parameters()), "parameters")

# %%
# Training
# --------
# The same loop for both: Adam on the whole training set.


def train(spec, width, seed, steps=300):
    torch.manual_seed(seed)
    net = network(spec, width)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    losses = []
    for _ in range(steps):
        loss = nn.functional.binary_cross_entropy_with_logits(
            net(x_train).squeeze(1), y_train
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        accuracy = ((net(x_test).squeeze(1) > 0) == (y_test > 0)).float().mean().item()
    return losses, accuracy


results = {
    spec: [train(spec, width, seed) for seed in range(6)]
    for spec, width in sizes.items()
}

# %%
# Results
# -------
# Every seed is drawn. A mean alone would hide that some networks solve the task and
# others do not.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(8, 3.5), layout="constrained", width_ratios=(3, 2)
)
for place, (spec, color) in enumerate({"relu": "black", "xnor_ail": "#D55E00"}.items()):
    for losses, _ in results[spec]:
        left.plot(losses, color=color, alpha=0.6, linewidth=1)
    left.plot([], [], color=color, label=spec)
    accuracies = [100 * accuracy for _, accuracy in results[spec]]
    right.plot([place] * len(accuracies), accuracies, "o", color=color, alpha=0.6)
    print(
        f"{spec}: test accuracy from {min(accuracies):.1f} to {max(accuracies):.1f} %"
    )
left.set(xlabel="step", ylabel="training loss", ylim=(0, None))
left.legend()
right.set(
    xticks=(0, 1), xticklabels=list(sizes), xlim=(-0.5, 1.5), ylabel="test accuracy (%)"
)

# %%
# XNOR is better here on average, because the task is built from XNORs. This says
# nothing about other data; use :doc:`/compare` for yours.

mean = {
    spec: sum(accuracy for _, accuracy in runs) / len(runs)
    for spec, runs in results.items()
}
assert mean["xnor_ail"] > mean["relu"] + 0.05
