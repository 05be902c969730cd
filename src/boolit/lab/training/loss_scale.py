"""Loss scaling: float16 has no numbers below 6e-8, where most gradients lie, so they are computed many times as large."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST, GROWTH, INTERVAL = 2.0**16, 2.0, 2000  # those of torch.amp.GradScaler


class LossScale:
    """As ``torch.amp.GradScaler``: twice as large after 2000 steps without an overflow, half as large after one.

    ``state`` holds the scale and the steps since it last changed.
    """

    def __init__(self) -> None:
        self.state = torch.tensor([FIRST, 0.0], dtype=torch.float64)

    @property
    def factor(self) -> float:
        """What losses are multiplied by; a power of two, so that nothing is rounded."""
        return float(self.state[0])

    def undo(self, gradients: Tensor) -> bool:
        """Divides gradients by the scale, in place, and says whether they are usable; the scale is adapted."""
        usable = bool(gradients.isfinite().all())
        gradients.div_(self.factor)
        if not usable:
            self.state[0], self.state[1] = self.state[0] / GROWTH, 0
        elif self.state[1] + 1 == INTERVAL:
            self.state[0], self.state[1] = self.state[0] * GROWTH, 0
        else:
            self.state[1] += 1
        return usable
