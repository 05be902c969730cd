"""Task-driven modular networks for compositional zero-shot learning, as published and as changed by the paper (a:czsl).

A network (Purushwalkam et al. 2019) scores how well an image and a pair of words match. The words gate the connections between
small modules in layers; the last layer outputs the score of the pair.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import boolit
from boolit.errors import UserError
from boolit.lab.common.random import generator
from boolit.lab.models.base import Family, Shape, check_depth, draw_weights
from boolit.lab.models.mlp import LearnedActivation, StackedBatchNorm, stacked_activation
from boolit.nn import Activation

MATCHED = {Fraction(1): 64, Fraction(1, 2): 70, Fraction(3, 2): 60}  # tab:tmnx: pre-activation widths by feature factor
GATER_SD = 0.1
IMAGES_AT_ONCE = 64  # with all pairs, in evaluation
ROWS_AT_ONCE = 2**14  # images times pairs, in evaluation
NUMBERS_AT_ONCE = 2**23  # pre-activations; beyond, modules are computed in parts and recomputed in the backward pass


class Tmn(Family):
    """Task-driven modular network.

    In a TMN the width is the output of the modules' activations, ``embedding``, and the gater always has ReLU and ``gater``
    units; otherwise the counts of tab:tmn-og are not reached (NOTE[paper]: the text says that all ReLUs are replaced). In a
    TMNx the width is the input of every activation, the gater's too.

    Args:
        variant: ``tmn``, whose modules end with their activation, or ``tmnx``, with a linear layer after it.
        attributes, objects, vectors: number of words of each kind and length of their vectors, as in the data.
        modules, layers: number of modules per layer, and of layers.
        embedding: outputs of a module.
        gater: hidden units of the gating network of a TMN.
        gater_rate: factor on the learning rate of the gating network.
        sizes: ``equal``: every activation of a TMNx has the width of the study. ``matched``: that is the width of 1→1
            activations, and others have the paper's, or else the width that matches the parameter count.
    """

    name: Literal["tmn"] = "tmn"
    variant: Literal["tmn", "tmnx"] = "tmnx"
    attributes: int = Field(default=115, ge=1)
    objects: int = Field(default=245, ge=1)
    vectors: int = Field(default=300, ge=1)
    modules: int = Field(default=24, ge=1, le=10_000)
    layers: int = Field(default=3, ge=1, le=100)
    embedding: int = Field(default=16, ge=1)
    gater: int = Field(default=64, ge=1)
    gater_rate: float = Field(default=1.0, gt=0)
    sizes: Literal["equal", "matched"] = "matched"

    def widths(self, size: int, depth: int) -> list[int]:
        check_depth(depth, "the layers of a TMN are counted by model.layers")
        return [size]

    def widths_for_activation(self, widths: list[int], inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if self.variant == "tmnx":
            return widths if self.sizes == "equal" else self.matched_widths(widths, inputs, outputs, activation, MATCHED)
        before = _single_width(widths) / activation.feature_factor
        if before.denominator != 1 or before % activation.width_multiple:
            rule = f"no width before {activation.spec} gives {widths[0]} after it"
            raise UserError(f"{rule}, as the modules of a TMN must; choose another activation or variant = 'tmnx'")
        return [int(before)]

    def widths_for_budget(self, budget: int, depth: int, inputs: Shape, outputs: int, activation: Activation) -> list[int]:
        if self.variant == "tmn":
            raise UserError(f"budget {budget}: a TMN has one size; use sweep.width = {self.embedding} or variant = 'tmnx'")
        return super().widths_for_budget(budget, depth, inputs, outputs, activation)

    def network(self, inputs: Shape, outputs: int, widths: Sequence[int], spec: str) -> nn.Module:
        if len(inputs) != 1:
            raise UserError(f"samples of shape {tuple(inputs)}: a TMN takes image features of shape (features,)")
        width = _single_width(widths)
        if self.variant == "tmn" and (reached := boolit.activation(spec).out_features(width)) != self.embedding:
            rule = f"{spec} maps {width} to {reached} features, but the modules of a TMN output {self.embedding}"
            raise UserError(f"{rule}; use sweep.width = {self.embedding}, or variant = 'tmnx'")
        return TmnNetwork(self, inputs[0], outputs, width, spec)

    def initialize(self, network: nn.Module, seed: int) -> None:
        super().initialize(network, seed)
        for name, layer in network.named_modules():
            if isinstance(layer, ModuleLinear):
                bias = None if layer.bias is None else layer.bias.flatten()
                draw_weights(layer.weight.flatten(0, 1), bias, seed, name)
            elif isinstance(layer, nn.Embedding):
                _draw_normal(layer.weight, seed, name, 1.0)
        _draw_normal(network.get_parameter("gater.first.weight"), seed, "gater.first", GATER_SD)
        nn.init.zeros_(network.get_parameter("gater.last.weight"))  # all gates are equal at first

    def rate_factor(self, parameter: str) -> float:
        return self.gater_rate if parameter.startswith("gater.") else 1.0


def _draw_normal(weight: Tensor, seed: int, name: str, sd: float) -> None:
    with torch.no_grad():
        weight.normal_(0, sd, generator=generator(seed, "initialisation", name))


def _single_width(widths: Sequence[int]) -> int:
    if len(widths) != 1:
        raise UserError(f"widths {list(widths)}: all layers of a TMN have the same width; give a single one")
    return widths[0]


class TmnNetwork(nn.Module):
    """Scores of the listed ``pairs``, or of the candidates whose numbers follow an image's features.

    What depends on the image alone is computed once per image, and gates once per distinct pair of a batch.

    Shape: ``(batch, features)`` to ``(batch, pairs)``; ``(batch, features + candidates)`` to ``(batch, candidates)``.
    """

    pairs: Tensor

    def __init__(self, family: Tmn, features: int, pairs: int, width: int, spec: str) -> None:
        super().__init__()
        extended = family.variant == "tmnx"
        self.features, self.modules_per_layer = features, family.modules
        # Gates of the image, the first layer, every further layer and the head. The first two have one sender and are always
        # 1, but the original has weights for them.
        modules = family.modules
        self.gate_counts = [1, modules, *[modules**2] * (family.layers - 1), modules]
        self.register_buffer("pairs", torch.zeros(pairs, 2, dtype=torch.int64))
        # The last row is for padding, as in the original. Zeros, because drawing on the meta device takes a second.
        words = (torch.zeros(count + 1, family.vectors) for count in (family.attributes, family.objects))
        self.attributes, self.objects = (nn.Embedding.from_pretrained(vectors, freeze=False) for vectors in words)
        gater_width, gater_spec = (width, spec) if extended else (family.gater, "relu")
        self.gater = GatingNetwork(2 * family.vectors, gater_width, sum(self.gate_counts), gater_spec)
        sizes = (width, spec, family.embedding if extended else None)
        self.first = FirstLayer(modules, features, *sizes)
        self.inner = nn.ModuleList(InnerLayer(modules, family.embedding, *sizes) for _ in range(family.layers - 1))
        self.head = nn.Sequential(OrderedDict(norm=nn.BatchNorm1d(family.embedding), linear=nn.Linear(family.embedding, 1)))

    def forward(self, x: Tensor) -> Tensor:
        images, candidates = x[:, : self.features], x[:, self.features :].long()
        if candidates.shape[1]:
            return self._of_candidates(images, candidates)
        listed = torch.arange(len(self.pairs), device=x.device)
        if self.training:
            return self._of_candidates(images, listed.expand(len(x), -1))
        gates = self._gates(listed, torch.ones_like(listed))
        return torch.cat([self._of_all(piece, gates) for piece in images.split(IMAGES_AT_ONCE)])

    def _of_candidates(self, images: Tensor, candidates: Tensor) -> Tensor:
        distinct, numbers = candidates.flatten().unique(return_inverse=True)
        order = numbers.argsort(stable=True)
        outputs = self.first(images).index_select(1, order // candidates.shape[1])
        counts = numbers.bincount()
        sorted_scores = self._scores(self._gates(distinct, counts), outputs, counts.tolist())
        return sorted_scores.index_select(0, order.argsort()).view(candidates.shape)

    def _of_all(self, images: Tensor, gates: Sequence[Tensor]) -> Tensor:
        outputs, size = self.first(images), max(1, ROWS_AT_ONCE // len(images))
        pieces = []
        for first in range(0, len(self.pairs), size):
            part = [layer[first : first + size] for layer in gates]
            pairs = len(part[0])
            rows = self._scores(part, outputs.repeat(1, pairs, 1), [len(images)] * pairs)
            pieces.append(rows.view(pairs, len(images)))
        return torch.cat(pieces).T

    def _gates(self, numbers: Tensor, counts: Tensor) -> list[Tensor]:
        """Return the gates of listed pairs into each layer after the first and the head, ``(pairs, receivers, senders)``."""
        attributes, objects = self.pairs[numbers].unbind(1)
        words = torch.cat([self.attributes(attributes), self.objects(objects)], 1)
        _, _, *used = self.gater(words, counts).split(self.gate_counts, 1)
        return [gates.view(len(numbers), -1, self.modules_per_layer).softmax(2) for gates in used]

    def _scores(self, gates: Sequence[Tensor], outputs: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the scores of rows, sorted by pair, from the first layer's outputs ``(modules, rows, embedding)``."""
        for layer, of_layer in zip(self.inner, gates, strict=False):
            outputs = layer(mix(of_layer, outputs, counts))
        scores: Tensor = self.head(mix(gates[-1], outputs, counts).squeeze(0))
        return scores.squeeze(1)


class GatingNetwork(nn.Module):
    """The gates of pairs of words before the softmax. In training its batch norm counts each pair ``counts`` times."""

    def __init__(self, inputs: int, width: int, gates: int, spec: str) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width, bias=False)
        self.norm, self.activation = nn.BatchNorm1d(width), boolit.activation(spec, dim=1)
        self.last = nn.Linear(self.activation.out_features(width), gates, bias=False)

    def forward(self, words: Tensor, counts: Tensor) -> Tensor:
        hidden = self.first(words)
        if self.training:
            repeated = self.norm(hidden.repeat_interleave(counts, 0))
            hidden = repeated.index_select(0, counts.cumsum(0) - counts)
        else:
            hidden = self.norm(hidden)
        gates: Tensor = self.last(self.activation(hidden))
        return gates


def mix(gates: Tensor, outputs: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the senders' outputs weighted by the gates of each row's pair. The first pair has the first ``counts[0]`` rows.

    With rows sorted by pair, all rows of a pair are one matrix product, and gates and their gradients are stored once per pair.

    Args:
        gates: ``(pairs, receivers, senders)``.
        outputs: ``(senders, rows, features)``.
        counts: rows of every pair.

    Example:
        >>> halves = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]]])
        >>> mix(halves, torch.tensor([[[2.0], [2.0], [2.0]], [[4.0], [4.0], [4.0]]]), [1, 2]).flatten().tolist()
        [3.0, 2.0, 2.0]
    """
    dtype = torch.promote_types(outputs.dtype, torch.float32)  # half precision is too coarse for running statistics
    matrices = outputs.to(dtype).flatten(1).split([count * outputs.shape[2] for count in counts], 1)
    mixed = [gate @ rows for gate, rows in zip(gates.to(dtype).unbind(), matrices, strict=True)]
    return torch.cat(mixed, 1).view(-1, *outputs.shape[1:])


class ModuleLinear(nn.Module):
    """The weights of one ``nn.Linear`` per module, initialized by `Tmn.initialize`."""

    bias: nn.Parameter | None

    def __init__(self, modules: int, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(modules, outputs, inputs))
        self.register_parameter("bias", nn.Parameter(torch.zeros(modules, outputs)) if bias else None)


class ModuleNorm(StackedBatchNorm):
    """The weights and running statistics of one ``nn.BatchNorm1d`` per module, for `InnerLayer`."""

    def update(self, mean: Tensor, variance: Tensor, samples: int) -> None:
        """Update the running statistics."""
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
            self.running_var.lerp_((variance * (samples / max(samples - 1, 1))).to(self.running_var), self.momentum)

    def scale(self, variance: Tensor) -> Tensor:
        """Return the factor on centered features."""
        return self.weight * (variance.clamp(min=0) + self.eps).rsqrt()


class FirstLayer(nn.Module):
    """Modules that read the image: linear, batch norm, activation and, in a TMNx, a linear projection without bias.

    Shape: ``(batch, inputs)`` to ``(modules, batch, embedding)``.
    """

    def __init__(self, modules: int, inputs: int, width: int, spec: str, projected: int | None) -> None:
        super().__init__()
        features = boolit.activation(spec).out_features(width)
        self.linear, self.norm = ModuleLinear(modules, inputs, width), nn.BatchNorm1d(modules * width)
        self.activation = stacked_activation(modules, spec, dim=2)
        self.projection = None if projected is None else ModuleLinear(modules, features, projected, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        modules, width, _ = weight.shape
        rows = self.norm(F.linear(x, weight.flatten(0, 1), bias if bias is None else bias.flatten()))
        result: Tensor = self.activation(rows.view(-1, modules, width).transpose(0, 1).contiguous())
        return result if self.projection is None else result @ self.projection.weight.mT


class InnerLayer(nn.Module):
    """Modules that read mixed outputs of modules: batch norm, then as in the first layer.

    A batch norm, a linear layer and a batch norm in a row are one linear map, whose weights follow from mean and covariance of
    the input, so that no normalized tensor is written. Plain batch norms take 1.4 to 1.8 times as long and 1.75 times as much
    memory.

    Shape: ``(modules, rows, embedding)``, unchanged.
    """

    def __init__(self, modules: int, embedding: int, width: int, spec: str, projected: int | None) -> None:
        super().__init__()
        features = boolit.activation(spec).out_features(width)
        self.entry, self.linear = ModuleNorm(modules, embedding), ModuleLinear(modules, embedding, width)
        self.norm, self.activation = ModuleNorm(modules, width), stacked_activation(modules, spec, dim=2)
        self.projection = None if projected is None else ModuleLinear(modules, features, projected, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            weight, shift = self._map(x)
        size = max(1, NUMBERS_AT_ONCE // (x.shape[1] * weight.shape[1]))
        parts = [slice(first, first + size) for first in range(0, len(x), size)]
        compute = self._part
        if len(parts) > 1 and torch.is_grad_enabled():
            compute = partial(checkpoint, self._part, use_reentrant=False, preserve_rng_state=False)
        pieces = [compute(part, x[part], weight[part], shift[part]) for part in parts]
        return pieces[0] if len(parts) == 1 else torch.cat(pieces)

    def _part(self, part: slice, x: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        """Return the outputs of a range of modules."""
        activation = self.activation.part(part) if isinstance(self.activation, LearnedActivation) else self.activation
        outputs: Tensor = activation(torch.baddbmm(shift.unsqueeze(1), x, weight.mT))
        return outputs if self.projection is None else outputs @ self.projection.weight[part].mT

    def _map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights ``(modules, width, embedding)`` and constants ``(modules, width)`` of norm, linear layer and norm."""
        assert self.linear.bias is not None
        middle = _matvec(self.linear.weight, self.entry.bias) + self.linear.bias  # the image of the mean
        if self.training:
            mean, samples = x.mean(1), x.shape[1]
            centered = x - mean.unsqueeze(1)
            covariance = centered.mT @ centered / samples
            variance = covariance.diagonal(dim1=1, dim2=2)
            self.entry.update(mean, variance, samples)
            weight = self.linear.weight * self.entry.scale(variance).unsqueeze(1)
            variance, center = (weight @ covariance * weight).sum(2), middle
            self.norm.update(center, variance, samples)
        else:
            mean, variance, center = self.entry.running_mean, self.norm.running_var, self.norm.running_mean
            weight = self.linear.weight * self.entry.scale(self.entry.running_var).unsqueeze(1)
        scale = self.norm.scale(variance)
        return weight * scale.unsqueeze(2), self.norm.bias + scale * (middle - center - _matvec(weight, mean))


def _matvec(weight: Tensor, vector: Tensor) -> Tensor:
    return (weight @ vector.unsqueeze(2)).squeeze(2)
