"""One number of the paper against ours, and the networks whose parameters are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from boolit.lab.models import Family

Value: TypeAlias = int | float | str


@dataclass(frozen=True)
class Check:
    """What the paper says, what we get, and how far apart they may be.

    ``expected`` is the target where it differs from what the paper prints: a count the paper rounds to thousands, or the right
    value where the paper slips (``slip``; the note then says how).

    Example:
        >>> Check("mean of OR_AIL", paper=0.68104, ours=0.6810370722, tolerance=5e-6).ok
        True
    """

    name: str
    paper: Value
    ours: Value
    expected: Value | None = None
    tolerance: float = 0.0
    slip: bool = False
    note: str = ""

    @property
    def target(self) -> Value:
        """What ours is compared with."""
        return self.paper if self.expected is None else self.expected

    @property
    def ok(self) -> bool:
        """Whether ours is the target, up to the tolerance; NaN never is."""
        if isinstance(self.target, str) or isinstance(self.ours, str):
            return self.target == self.ours
        return abs(self.ours - self.target) <= self.tolerance


def uniform(values: dict[str, str]) -> str:
    """The value all entries share; where they differ, the most common one and the exceptions.

    Example:
        >>> uniform({"relu": "1→1", "tanh": "1→1", "max": "2→1"})
        '1→1, but max 2→1'
    """
    held = list(values.values())
    common = max(dict.fromkeys(held), key=held.count)
    others = [f"{name} {value}" for name, value in values.items() if value != common]
    return ", but ".join([common, *others[:1]]) + (f" and {len(others) - 1} more" if len(others) > 1 else "")


def count_and_run(family: Family, inputs: tuple[int, ...], outputs: int, widths: list[int], spec: str, sample: Tensor) -> int:
    """The parameters of a network, which must also run on a sample: a wrong shape raises an error."""
    import torch  # here, as the command line shows the families of checks without it

    from boolit.nn.width import count_parameters

    with torch.device("meta"):  # no memory and no random numbers for initial weights
        network = family.network(inputs, outputs, widths, spec)
    network.to_empty(device="cpu").eval()
    for buffer in network.buffers():
        buffer.zero_()
    with torch.inference_mode():
        network(sample)
    return count_parameters(network)
