"""Augmentations: what happens to every batch of every run before it is learnt from, by name.

One takes a batch ``(runs, batch, …)``, the runs' keys and the step, and draws with `boolit.lab.randomness.uniform` or
`normal`, so that it is one operation for all runs and every run has its own randomness.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from boolit.lab.randomness import normal

Augmentation = Callable[[Tensor, Tensor, int], Tensor]
JITTER = 0.1


def jitter(x: Tensor, run_keys: Tensor, step: int) -> Tensor:
    """Normal noise with a standard deviation of 0.1 on every input.

    Shape: ``(runs, batch, …)``, unchanged.
    """
    return x + JITTER * normal(run_keys, step, x.shape[1:])


AUGMENTATIONS: dict[str, Augmentation] = {"jitter": jitter}
