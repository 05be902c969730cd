"""convert(weights="exact"): a ReLU network computes after the conversion what it did before, and its new rows can learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import MobileNetV2Config, MobileNetV2ForImageClassification, OPTConfig, OPTForCausalLM

from boolit.nn import Activation, convert


class VGG(nn.Module):
    """Convolutions with batch norm, pooling and a flatten before the head; its activations are calls."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.conv2, self.norm2 = nn.Conv2d(12, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.fc1, self.fc2 = nn.Linear(16 * 2 * 2, 20), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Residual(nn.Module):
    """relu(x + f(x)), as in He et al."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.inner, self.outer = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(x + self.norm2(self.conv2(self.inner(self.norm1(self.conv1(x))))))


class Inverted(nn.Module):
    """Expand, convolve each channel alone, reduce: the block of MobileNetV2, with ReLU."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        wide = 4 * width
        self.add = width == out and stride == 1
        self.expand, self.norm1 = nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise, self.norm2 = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        self.reduce, self.norm3 = nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu1, self.relu2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.relu2(self.norm2(self.depthwise(self.relu1(self.norm1(self.expand(x))))))
        hidden = self.norm3(self.reduce(hidden))
        return x + hidden if self.add else hidden


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))


def residual() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), Residual(12), Residual(12), nn.Flatten(), nn.Linear(12 * 64, 5)
    )


def mobilenet() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    blocks = [Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))


def transformers_mobilenet() -> nn.Module:
    config = MobileNetV2Config(
        image_size=32, depth_multiplier=0.25, min_depth=8, hidden_act="relu", num_labels=5, classifier_dropout_prob=0.0
    )
    return MobileNetV2ForImageClassification(config)


def opt() -> nn.Module:
    config = OPTConfig(
        vocab_size=40,
        hidden_size=16,
        ffn_dim=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        dropout=0.0,
    )
    return OPTForCausalLM(config)


class Case(NamedTuple):
    """A network, what it is given, and what convert is told."""

    build: Callable[[], nn.Module]
    example: Callable[[], dict[str, Tensor]]
    settings: Mapping[str, Any] = {}


def rows(*shape: int, name: str = "input") -> Callable[[], dict[str, Tensor]]:
    return lambda: {name: torch.randn(shape)}


CASES = {
    "MLP": Case(mlp, rows(16, 10)),
    "VGG": Case(VGG, rows(8, 3, 8, 8, name="x")),
    "residual": Case(residual, rows(8, 3, 8, 8), {"skip_pinned": True}),
    "MobileNetV2": Case(mobilenet, rows(8, 3, 16, 16), {"skip_pinned": True}),
    "transformers' MobileNetV2": Case(transformers_mobilenet, rows(8, 3, 32, 32, name="pixel_values"), {"skip_pinned": True}),
    "OPT": Case(opt, lambda: {"input_ids": torch.randint(3, 40, (8, 9))}),
}


def logits(model: nn.Module, example: Mapping[str, Tensor]) -> Tensor:
    given = model(**example)
    return given if isinstance(given, Tensor) else given.logits


def as_double(example: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.double() if value.is_floating_point() else value for name, value in example.items()}


def difference(one: Tensor, other: Tensor) -> float:
    """Relative to the largest output."""
    return float((one - other).abs().max() / one.abs().max())


def settle(model: nn.Module, example: Callable[[], dict[str, Tensor]]) -> None:
    """Some statistics of batch norm and some biases, so that nothing is zero or one by chance."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for _ in range(3):
            logits(model.train(), example())


@pytest.mark.parametrize("spec", ["or_ail", "or_and_ail_d", "max"])
@pytest.mark.parametrize("name", CASES)
def test_computes_the_same_and_learns_from_there(name: str, spec: str) -> None:
    case = CASES[name]
    model = case.build()
    settle(model, case.example)
    conversion = convert(model, spec, weights="exact", example=case.example(), **case.settings)
    converted = conversion.model
    assert any(isinstance(module, Activation) and module.spec == spec for module in converted.modules())

    example = case.example()
    with torch.no_grad():
        assert difference(logits(model.eval(), example), logits(converted.eval(), example)) <= 1e-5
        # In training too; batch norm over a few rows magnifies rounding, so this is said of numbers with less of it.
        double, both = as_double(example), [copy.deepcopy(each).double().train() for each in (model, converted)]
        assert difference(*(logits(each, double) for each in both)) <= 1e-12

    fresh = {key: value == 0 for key, value in converted.named_parameters()}  # what does not contribute yet
    added = sum(int(zeros.sum()) for zeros in fresh.values())
    assert added > 0
    converted.train()
    optimiser = torch.optim.SGD(converted.parameters(), lr=0.003)
    target = torch.randint(5, logits(converted, example).shape[:-1])
    losses = []
    for _ in range(8):
        optimiser.zero_grad()
        loss = F.cross_entropy(logits(converted, example).flatten(0, -2), target.flatten())
        loss.backward()
        losses.append(loss.item())
        optimiser.step()
    assert losses[-1] < losses[0]
    learned = sum(int((value[fresh[key]] != 0).sum()) for key, value in converted.named_parameters())
    assert learned > added / 2  # not all: AIL shares no gradient with a 0 beside a positive number
