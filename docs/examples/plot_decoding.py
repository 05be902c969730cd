"""
Parity checks are XNOR gates
============================

Belief propagation decodes a code by adding logits and by XNOR gates, in turn. Here it
corrects bit flips of a random code. The same kind of gate pools bags of instances.
"""

# %%
# Frame-error rates
# -----------------
# A decoder sees only the parities of the errors. The exact XNOR (product-sum) corrects
# more than the approximate one (min-sum). Scaling its messages helps.

import matplotlib.pyplot as plt
import torch

from boolit.graphs import BeliefPropagation, channel_logit, gallager_code, gather_gate

torch.manual_seed(0)
H = gallager_code(120)
decoders = {
    "product-sum": BeliefPropagation(H, iterations=20),
    "min-sum": BeliefPropagation(H, iterations=20, form="ail"),
    "0.8 min-sum": BeliefPropagation(H, iterations=20, form="ail", scaling=0.8),
}
rates = [0.01, 0.02, 0.03, 0.04, 0.05]
failures = {name: [] for name in decoders}
for rate in rates:
    errors = torch.rand(4000, 120) < rate
    syndrome = errors.long() @ H.T.long() % 2
    for name, decoder in decoders.items():
        bits = decoder(torch.full((120,), channel_logit(rate)), syndrome).bits
        failures[name].append((bits != errors).any(1).float().mean().item())

for name, values in failures.items():
    plt.semilogy(rates, values, marker="o", label=name)
plt.xlabel("flip probability")
plt.ylabel("frames with a wrong bit")
plt.legend()
plt.tight_layout()

# %%
# Noisy OR of bags
# ----------------
# A bag is positive if at least one of its instances is: the OR of their logits. Bags
# have any number of instances.

sizes = torch.tensor([2, 5, 9])
offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
instances = torch.full((16,), -2.0)
bags = gather_gate(instances, (offsets, torch.arange(16)), "or_il")
expected = 1 - (1 - torch.sigmoid(torch.tensor(-2.0))) ** sizes
assert torch.allclose(bags.sigmoid(), expected)
print(bags.sigmoid())
