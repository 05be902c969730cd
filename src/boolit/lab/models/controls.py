"""Controls for gates: activations that read pairs but compute no logic (docs/settle.md).

A gate in AIL form is continuous, positively homogeneous and linear on cones: three for OR and AND, four for XNOR.
``pair_random_or``, ``pair_random_and`` and ``pair_random_xnor`` draw maps of that family with as many cones, and with the
gate's mean and standard deviation under N(0, 1) inputs, one for every neuron from the run's seed; ``pair_random_d`` is the
control of ``or_and_xnor_ail_d``. ``pair_learned`` learns a map per neuron, the difference of two maxouts of two linear forms.
They need the width of their layer, which perceptrons give them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.logic.moments import moments
from boolit.nn import Activation, register

CONES = {"or": 3, "and": 3, "xnor": 4}  # linear regions of the gates in AIL form
NARROWEST, WIDEST = math.pi / 8, 7 * math.pi / 8  # of a cone; the map is linear on a cone only if it is narrower than π
CANDIDATES = 256  # sets of rays drawn for each neuron, of which the first valid one is used
FORMS = 4  # linear forms of a learned map


class Control(Activation):
    """A map of pairs that every neuron of a layer has its own copy of; stacked layers are ``(runs, channels, batch)``."""

    runs: int | None = None
    pairs = 0

    def sized(self, width: int, runs: int | None = None) -> Control:
        """Create the tensors for a layer of ``width`` channels, stacked if ``runs`` are given."""
        self.pairs, self.runs = self.out_features(width) // self.channels[1], runs
        self._create((self.pairs,) if runs is None else (runs, self.pairs))
        return self

    def seed(self, seeds: Sequence[int], name: str) -> None:
        """Draw the maps of every run from its seed and the layer's name."""
        for run, seed in enumerate(seeds):
            drawn, tensors = self._draw(seed, name), self.state_dict()
            for key, values in drawn.items():
                (tensors[key] if self.runs is None else tensors[key][run]).copy_(values)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output."""
        if not self.pairs:
            raise UserError(f"{self.spec} draws one map per neuron, so it works in perceptrons only (model.name = 'mlp')")
        if self.runs is not None:
            maps = self._map(x.reshape(-1, 2, x.shape[2]))
            return maps.view(-1, self.runs, self.pairs, x.shape[2]).transpose(0, 1).reshape(self.runs, -1, x.shape[2])
        return self._map(x.reshape(-1, self.pairs, 2).permute(1, 2, 0)).flatten(0, 1).mT.reshape(*x.shape[:-1], -1)

    @abstractmethod
    def _create(self, shape: tuple[int, ...]) -> None: ...

    @abstractmethod
    def _draw(self, seed: int, name: str) -> dict[str, Tensor]: ...

    @abstractmethod
    def _map(self, pairs: Tensor) -> Tensor:
        """Map ``(runs · pairs, 2, batch)`` to ``(outputs, runs · pairs, batch)``."""


class PairRandom(Control):
    """Random maps with as many linear regions as the gates, and with their mean and standard deviation."""

    def __init__(self, spec: str, gates: Sequence[str], dim: int | None = None) -> None:
        super().__init__(spec, (2, len(gates)), dim)
        self.gates = tuple(gates)

    def _create(self, shape: tuple[int, ...]) -> None:
        for i, gate in enumerate(self.gates):
            self.register_buffer(f"normals{i}", torch.zeros(*shape, CONES[gate], 2))
            self.register_buffer(f"slopes{i}", torch.zeros(*shape, 2, CONES[gate]))

    def _draw(self, seed: int, name: str) -> dict[str, Tensor]:
        drawn: dict[str, Tensor] = {}
        for i, gate in enumerate(self.gates):
            normals, slopes = random_cones(CONES[gate], self.pairs, *moments(gate, "ail"), generator(seed, "cones", name, i))
            drawn |= {f"normals{i}": normals, f"slopes{i}": slopes}
        return drawn

    def _map(self, pairs: Tensor) -> Tensor:
        outputs = []
        for i in range(len(self.gates)):
            normals, slopes = (self.get_buffer(f"{name}{i}").flatten(0, -3) for name in ("normals", "slopes"))
            with torch.no_grad():  # the slopes are constant on every cone
                left = (normals @ pairs.detach()) >= 0  # of each ray
                slope = slopes @ (left & ~left.roll(-1, 1)).to(pairs.dtype)
            outputs.append((slope * pairs).sum(1))
        return torch.stack(outputs)


def random_cones(cones: int, count: int, mean: float, sd: float, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw continuous maps of the plane that are linear on cones and have a mean and standard deviation under N(0, 1) inputs.

    A map is given by its values on rays: normal numbers, shifted and scaled to the moments.

    Returns:
        Normals of the rays ``(count, cones, 2)``, with which a point has a positive product on the left of a ray, and slopes
        ``(count, 2, cones)`` of the cone on the left of each ray, in float32.
    """
    angles = (torch.rand(count, CANDIDATES, cones, generator=draw, dtype=torch.float64) * 2 * math.pi).sort(2).values
    gaps = (angles.roll(-1, 2) - angles).remainder(2 * math.pi)
    ones = torch.ones_like(gaps)
    first, second = _moments(angles, gaps, ones, ones)
    # A map that is 1 on its rays, scaled to the mean, must leave room for the standard deviation.
    valid = ((gaps > NARROWEST) & (gaps < WIDEST)).all(2) & (second * (mean / first) ** 2 < 0.9 * (mean**2 + sd**2))
    chosen = torch.arange(count), valid.int().argmax(1)
    angles, gaps, ones, first, second = (values[chosen] for values in (angles, gaps, ones, first, second))
    values = torch.randn(count, cones, generator=draw, dtype=torch.float64)
    values = values - (_moments(angles, gaps, values, ones)[0] / first).unsqueeze(1)  # E f = 0
    # E (scale · f + shift · h)² = mean² + sd² for the map h that is 1 on the rays is a quadratic equation for the scale.
    shift = mean / first
    square, mixed = _moments(angles, gaps, values, values)[1], shift * _moments(angles, gaps, values, ones)[1]
    scale = ((mixed**2 - square * (shift**2 * second - mean**2 - sd**2)).sqrt() - mixed) / square
    slopes = _slopes(angles, gaps, scale.unsqueeze(1) * values + shift.unsqueeze(1))
    return torch.stack([-angles.sin(), angles.cos()], 2).float(), slopes.mT.contiguous().float()


def _slopes(angles: Tensor, gaps: Tensor, values: Tensor) -> Tensor:
    """Return the slopes ``(…, cones, 2)`` that interpolate values on the rays at ``angles`` and ``angles + gaps``."""
    after, end = values.roll(-1, -1), angles + gaps
    slopes = torch.stack([values * end.sin() - after * angles.sin(), after * angles.cos() - values * end.cos()], -1)
    return slopes / gaps.sin().unsqueeze(-1)


def _moments(angles: Tensor, gaps: Tensor, values: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return E f and E f·h under N(0, 1) inputs, for maps f and h with ``values`` and ``others`` on the rays.

    In polar coordinates, E f = √(π/2) · mean of f and E f·h = 2 · mean of f·h on the unit circle.
    """
    (a, b), (c, d) = (_slopes(angles, gaps, each).unbind(-1) for each in (values, others))
    end = angles + gaps
    mean = a * (end.sin() - angles.sin()) - b * (end.cos() - angles.cos())
    cos_squared = gaps / 2 + ((2 * end).sin() - (2 * angles).sin()) / 4
    sin_cos = -((2 * end).cos() - (2 * angles).cos()) / 4
    product = a * c * cos_squared + (a * d + b * c) * sin_cos + b * d * (gaps - cos_squared)
    return mean.sum(-1) * math.sqrt(math.pi / 2) / (2 * math.pi), product.sum(-1) / math.pi


class PairLearned(Control):
    """The difference of two maxouts of two linear forms of a pair, with eight parameters per neuron."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__("pair_learned", (2, 1), dim)

    def _create(self, shape: tuple[int, ...]) -> None:
        self.forms = nn.Parameter(torch.zeros(*shape, FORMS, 2))

    def _draw(self, seed: int, name: str) -> dict[str, Tensor]:
        # The outputs then have a variance of 1 under N(0, 1) inputs, on average over the draws.
        sd = 1 / math.sqrt(FORMS * (1 - 1 / math.pi))
        return {"forms": sd * torch.randn(self.pairs, FORMS, 2, generator=generator(seed, "forms", name))}

    def _map(self, pairs: Tensor) -> Tensor:
        forms = (self.forms.flatten(0, -3) @ pairs).unflatten(1, (2, 2))
        high = torch.maximum(forms[:, :, 0], forms[:, :, 1])
        return (high[:, 0] - high[:, 1]).unsqueeze(0)


for _name, _gates in {**{gate: [gate] for gate in CONES}, "d": list(CONES)}.items():
    _spec = f"pair_random_{_name}"
    register(_spec, lambda dim, spec=_spec, gates=_gates: PairRandom(spec, gates, dim), listed=False)  # type: ignore[misc]
register("pair_learned", PairLearned, listed=False)
