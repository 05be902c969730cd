"""What becomes of weights: they are kept, or the converted model computes what it did and can learn."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn import convert


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


class Residual(nn.Module):
    """relu(x + f(x)), or x + f(relu(x)) with the norm before each activation."""

    def __init__(self, width: int, pre: bool) -> None:
        super().__init__()
        self.pre, self.norm1, self.norm2 = pre, nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            return x + self.conv2(self.relu(self.norm2(self.conv1(self.relu(self.norm1(x))))))
        return self.relu(x + self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x))))))


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise, self.norm2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        self.project, self.norm3 = nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm2(self.depthwise(F.relu(self.norm1(self.expand(x))))))
        return x + self.norm3(self.project(hidden))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.last, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.first(x))
        deep = F.relu(self.up(F.relu(self.deep(F.max_pool2d(first, 2)))))
        return self.out(F.relu(self.last(torch.cat([first, deep], 1))))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(2))
        self.norms, self.head = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(2)), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], 1)
        return self.head(F.relu(x).mean((2, 3)))


def stem(*blocks: nn.Module) -> nn.Sequential:
    head = (nn.Conv2d(8, 16, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5))
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *blocks, *head)


RELUS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(
        *(nn.Flatten(), nn.Linear(192, 24), nn.ReLU(), nn.Linear(24, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 5)),
    ),
    "vgg": lambda: stem(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
    "residual": lambda: stem(Residual(8, pre=False), Residual(8, pre=False)),
    "pre-activation": lambda: stem(Residual(8, pre=True), Residual(8, pre=True)),
    "mobile": lambda: stem(Inverted(8, 24), Inverted(8, 24)),
    "unet": UNet,
    "dense": Dense,
    "encoder": lambda: nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.Flatten(2), nn.TransformerEncoderLayer(36, 4, 64, batch_first=True, dropout=0.0)),
    ),
}


def make_trained(net: str) -> nn.Module:
    """A network whose norms have seen data, and are not what they are initialised as."""
    torch.manual_seed(0)
    model = RELUS[net]()
    for _ in range(3):
        model(images())
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(module.weight, 1.0, 0.3)
            nn.init.normal_(module.bias, 0.0, 0.3)
    return model.eval()


@pytest.mark.parametrize("net", RELUS)
@pytest.mark.parametrize("spec", ["or_ail", "or_and_ail_d", "or_ail_k3", "max_halves"])
def test_exact_weights_keep_the_function_and_learn(net: str, spec: str) -> None:
    model, x = make_trained(net), images()
    conversion = convert(model, spec, weights="exact", skip_pinned=True, example=x)
    converted, expected = conversion.model, model(x)
    assert (converted(x) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert {change.weights for change in conversion.changes} == {"", "exact"}
    # Batch norm over a few rows magnifies rounding, so training mode is compared in float64.
    both = [copy.deepcopy(each).double().train() for each in (model, converted)]
    torch.testing.assert_close(both[0](x.double()), both[1](x.double()), rtol=1e-9, atol=1e-9)
    converted.train()
    before = {name: value.detach().clone() for name, value in converted.named_parameters()}
    optimizer, losses = torch.optim.SGD(converted.parameters(), 0.02), []
    for _ in range(6):
        optimizer.zero_grad()
        loss = converted(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for name, value in converted.named_parameters():  # rows of zeros have begun to learn
        rows = before[name].flatten(1).abs().sum(1) == 0 if value.dim() > 1 else torch.zeros(0, dtype=torch.bool)
        assert not rows.any() or value[rows].abs().sum() > 0


@pytest.mark.parametrize(
    ("net", "left"),
    [("residual", ["3.relu_1", "4.relu_1"]), ("pre-activation", ["3.relu", "4.relu"]), ("mobile", []), ("dense", [])],
)
def test_exact_weights_leave_only_sums(net: str, left: list[str]) -> None:
    assert list(convert(make_trained(net), "or_ail", weights="exact", skip_pinned=True).left) == left


@pytest.mark.parametrize(
    ("layers", "spec", "options", "words"),
    [
        ((nn.Linear(4, 8), nn.ReLU()), "or_nail", {}, r"at 1: or_nail of a channel and zeros is not ReLU\(\); .*use or_ail"),
        ((nn.Linear(4, 8), nn.GELU()), "or_ail", {}, "at 1: .* is not GELU"),
        ((nn.Linear(4, 8), nn.ReLU()), "or_ail", {"budget": "params"}, "decides the widths"),
        ((nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU()), "or_ail", {}, "at 2: 1 treats its channels in groups"),
        ((nn.Embedding(9, 8), nn.ReLU()), "max", {}, "at 1: .*the embedding 0 fixes"),
    ],
)
def test_what_cannot_be_exact_is_refused(layers: tuple[nn.Module, ...], spec: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert(nn.Sequential(*layers, nn.Linear(8, 2)), spec, weights="exact", **options)


def test_exact_weights_refuse_a_group_norm_after_a_depthwise_layer() -> None:
    depthwise = nn.Conv2d(8, 8, 3, groups=8)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), depthwise, nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 2, 1))
    with pytest.raises(ValueError, match=r"at 1 .*: 3 treats its channels in groups"):
        convert(model, "or_ail", weights="exact")


def test_kept_weights_are_the_first_rows_and_columns() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    small = convert(model, "or_ail", weights="keep", example=images())
    assert torch.equal(small.model[4].weight, model[4].weight[:, : 4 * 36])
    assert small.changes[-1].weights == "kept"
    large = convert(model, "or_ail", weights="keep", budget="params", example=images()).model
    for name, value in model.state_dict().items():
        new = large.state_dict()[name]
        common = tuple(slice(min(a, b)) for a, b in zip(value.shape, new.shape, strict=True))
        assert torch.equal(new[common], value[common])
