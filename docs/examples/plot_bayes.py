"""
A linear layer is Bayes' rule
=============================

Read the outputs of a layer as logits: the log-odds that a feature is present. In this
form Bayes' rule is a sum. The posterior logit of a hypothesis H is the prior logit plus
the log-likelihood ratio of each independent piece of evidence, which is what a linear
layer computes.
"""

# %%
# Six independent symptoms
# ------------------------
# ``present`` is the probability of each symptom if H is true, ``absent`` if it is not.

import matplotlib.pyplot as plt
import torch

prior = torch.tensor(0.1)
present = torch.tensor([0.9, 0.7, 0.6, 0.8, 0.3, 0.5])
absent = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.4, 0.5])
evidence = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6)  # all 64 cases

joint = prior * torch.where(evidence > 0, present, 1 - present).prod(-1)
other = (1 - prior) * torch.where(evidence > 0, absent, 1 - absent).prod(-1)
posterior = joint / (joint + other)

# %%
# The same as a layer
# -------------------
# The bias holds the prior and the ratios of all symptoms being missing. A weight is the
# change when its symptom is seen.

layer = torch.nn.Linear(6, 1)
with torch.no_grad():
    layer.weight[:] = present.logit() - absent.logit()
    layer.bias[:] = prior.logit() + ((1 - present) / (1 - absent)).log().sum()
    logits = layer(evidence)[:, 0]
assert torch.allclose(logits.sigmoid(), posterior, atol=1e-5)

figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.plot(logits, posterior, "o", label="by Bayes' rule")
axis = torch.linspace(-8, 8, 100)
ax.plot(axis, axis.sigmoid(), label="sigmoid of the layer", zorder=0)
ax.set_xlabel("output of the linear layer")
ax.set_ylabel("probability of H")
ax.legend()

# %%
# More than two hypotheses
# ------------------------
# Naive Bayes for several classes is a linear layer followed by a softmax. Give each
# symptom one input for "seen" and one for "not seen": the weights are the logarithms of
# the class-conditional probabilities, and the bias is that of the priors.

priors = torch.tensor([0.1, 0.3, 0.6])
classes = torch.stack([present, absent, (present + absent) / 2])  # P(symptom | class)
inputs = torch.cat([evidence, 1 - evidence], dim=1)
naive_bayes = torch.nn.Linear(12, 3)
with torch.no_grad():
    naive_bayes.weight[:] = torch.cat([classes, 1 - classes], dim=1).log()
    naive_bayes.bias[:] = priors.log()
    posteriors = naive_bayes(inputs).softmax(dim=1)
likelihood = torch.where(evidence[:, None] > 0, classes, 1 - classes).prod(-1)
by_rule = priors * likelihood / (priors * likelihood).sum(1, keepdim=True)
assert torch.allclose(posteriors, by_rule, atol=1e-5)

# %%
# What it cannot do
# -----------------
# A sum can only weigh evidence. "Both" and "either" of two logits are not sums; for
# them there are :doc:`AND and OR <plot_gates>`. With weights 1 and 1, a bias of −1.5
# gives AND and −0.5 gives OR of the bits 0 and 1, but not of logits.

bits = torch.cartesian_prod(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))
both, either = bits.sum(1) - 1.5 > 0, bits.sum(1) - 0.5 > 0
assert both.equal(bits.all(1))
assert either.equal(bits.any(1))
assert -1.0 + 3.0 - 1.5 > 0  # "both", although the first is unlikely
