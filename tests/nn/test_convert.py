"""Conversion of whole models: they run, they keep what can be kept, and it is said what was changed."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from boolit.nn import Activation, activation
from boolit.nn.conversion import Conversion, convert
from boolit.nn.width import count_parameters, mlp_parameters, width_for_budget

SPECS = ["or_ail", "or_and_ail_d", "or_and_xnor_nail_d", "or_xnor_ail_p", "silu", "max_k4"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small are only slowed down by sharing them out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def mlp(widths: tuple[int, ...] = (128, 128), batch_norm: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    features = 20
    for width in widths:
        layers += [nn.Linear(features, width), *([nn.BatchNorm1d(width)] if batch_norm else []), nn.ReLU()]
        features = width
    return nn.Sequential(*layers, nn.Linear(features, 5))


def vgg() -> nn.Sequential:
    convolutions = [
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(2)),
    ]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(256, 96), nn.GELU(), nn.Dropout(), nn.Linear(96, 10))


class FunctionalVGG(nn.Module):
    """Every kind of call an activation comes as, a size written out, and a dropout that asks for the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)
        self.fc1, self.fc2, self.fc3 = nn.Linear(64 * 2 * 2, 96), nn.Linear(96, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
        x = torch.relu_(self.fc1(x.view(-1, 64 * 2 * 2)))
        x = F.dropout(x, 0.5, training=self.training)
        return self.fc3(F.leaky_relu(self.fc2(x), 0.1))


class PreActivationBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(outside), nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.relu = nn.ReLU()
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False) if inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.relu(self.norm1(x))
        stream = x if self.shortcut is None else self.shortcut(hidden)
        return stream + self.conv2(self.relu(self.norm2(self.conv1(hidden))))


class PreActivationResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(PreActivationBlock(32, 32), PreActivationBlock(32, 64, 2), PreActivationBlock(64, 64))
        self.norm, self.relu, self.head = nn.BatchNorm2d(64), nn.ReLU(), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3)))


class ClassicBlock(nn.Module):
    """Post-activation, one ReLU module for both places, as in torchvision."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.norm2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        short = [nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)] if inside != outside else []
        self.shortcut = nn.Sequential(*short)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out += self.shortcut(x)
        return self.relu(out)


class ClassicResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
        self.layer1 = nn.Sequential(ClassicBlock(32, 32), ClassicBlock(32, 32))
        self.layer2 = nn.Sequential(ClassicBlock(32, 64, 2), ClassicBlock(64, 64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.relu(self.norm(self.stem(x)))))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class TransformerBlock(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2, self.fc1, self.act, self.fc2 = (
            *(nn.LayerNorm(width), nn.Linear(width, 4 * width)),
            *(nn.GELU(), nn.Linear(4 * width, width)),
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden = self.norm1(x)
        x = x + self.attention(hidden, hidden, hidden, attn_mask=mask, need_weights=False)[0]
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


def tokens(width: int = 48) -> Tensor:
    return torch.randn(2, 7, width)


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (mlp, lambda: torch.randn(3, 20)),
    "vgg": (vgg, images),
    "functional vgg": (FunctionalVGG, images),
    "pre-activation resnet": (PreActivationResNet, images),
    "classic resnet": (ClassicResNet, images),
    "transformer block": (TransformerBlock, tokens),
    "torch's encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 192, batch_first=True), 2),
        tokens,
    ),
}


def check_runs(conversion: Conversion, original: nn.Module, x: Tensor) -> None:
    """Same output shape, and a gradient for every parameter."""
    y = conversion.model(x)
    assert y.shape == original(x).shape
    y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in conversion.model.parameters())
    assert conversion.parameters == (count_parameters(original), count_parameters(conversion.model))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("budget", ["width", "params"])
def test_every_model_runs_with_every_map_under_both_budgets(net: str, spec: str, budget: str) -> None:
    make, data = NETS[net]
    torch.manual_seed(0)
    model = make()
    conversion = convert(model, spec, budget=budget, skip_pinned=net == "classic resnet")
    check_runs(conversion, model, data())
    new = {change.now for change in conversion.changes if not change.weights}
    assert new == {spec}
    assert any(isinstance(module, Activation) and module.spec == spec for module in conversion.model.modules())
    before, after = conversion.parameters
    if budget == "params":
        assert abs(after / before - 1) < 0.01
    elif activation(spec).feature_factor == 1:
        assert after == before


@pytest.mark.parametrize("net", NETS)
def test_the_given_model_is_untouched_and_weights_of_kept_shapes_are_kept(net: str) -> None:
    model = NETS[net][0]()
    before, text = copy.deepcopy(model.state_dict()), repr(model)
    conversion = convert(model, "or_ail", skip_pinned=True)
    assert repr(model) == text
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    resized = {change.layer for change in conversion.changes if change.weights}
    after = conversion.model.state_dict()
    assert after.keys() == before.keys()
    for name, value in after.items():
        if name.rpartition(".")[0] in resized:
            continue
        assert torch.equal(value, before[name])
    assert {name.rpartition(".")[0] for name in after if after[name].shape != before[name].shape} == resized


@pytest.mark.parametrize("net", ["vgg", "functional vgg", "pre-activation resnet", "classic resnet", "transformer block"])
def test_the_same_activation_put_back_computes_the_same(net: str) -> None:
    make, data = NETS[net]
    model, x = make().eval(), data()
    old = "gelu" if net == "transformer block" else "relu"
    conversion = convert(model, old, replace=[old])
    torch.testing.assert_close(conversion.model(x), model(x), rtol=0, atol=0)


@given(
    widths=st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple),
    spec=st.sampled_from([*SPECS, "or_ail_k3", "or_xnor_nil_d_k3"]),
    norm=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_width_budget_keeps_the_nearest_multiple_before_every_activation(
    widths: tuple[int, ...], spec: str, norm: bool
) -> None:
    model = mlp(widths, norm)
    conversion = convert(model, spec)
    check_runs(conversion, model, torch.randn(3, 20))
    divisor = activation(spec).divisor
    linear = [layer for layer in conversion.model if isinstance(layer, nn.Linear)]
    for layer, width in zip(linear[:-1], widths, strict=True):
        assert layer.out_features % divisor == 0
        assert abs(layer.out_features - width) <= divisor / 2 or layer.out_features == divisor
    for one, other in pairwise(linear):
        assert other.in_features == activation(spec).out_features(one.out_features)


@given(
    width=st.integers(30, 300),
    depth=st.integers(1, 3),
    spec=st.sampled_from([spec for spec in SPECS if activation(spec).divisor > 1]),
    norm=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_params_budget_finds_the_width_the_count_formula_does(width: int, depth: int, spec: str, norm: bool) -> None:
    act = activation(spec)
    model = mlp((width,) * depth, norm)
    converted = convert(model, spec, budget="params").model

    def count(n: int) -> int:
        return mlp_parameters(20, [n] * depth, 5, act, norm)

    best = width_for_budget(count, count_parameters(model), act.divisor)
    found = [layer.out_features for layer in converted if isinstance(layer, nn.Linear)][:-1]
    if len(set(found)) == 1:
        assert abs(count(found[0]) - count_parameters(model)) == abs(count(best) - count_parameters(model))
    else:
        # Like layers part only where the best common width misses by more than one part in a hundred.
        assert abs(count(best) / count_parameters(model) - 1) > 0.01
        assert abs(count_parameters(converted) - count_parameters(model)) < abs(count(best) - count_parameters(model))


def test_what_is_said_is_what_was_done() -> None:
    conversion = convert(vgg(), "or_and_xnor_nail_d")
    assert [str(change) for change in conversion.changes] == [
        "2: ReLU(inplace=True) → or_and_xnor_nail_d",
        "4: Conv2d(32, 64) → Conv2d(48, 64), new weights",
        "6: ReLU(inplace=True) → or_and_xnor_nail_d",
        "9: Linear(256, 96) → Linear(384, 96), new weights",
        "10: GELU(approximate='none') → or_and_xnor_nail_d",
        "12: Linear(96, 10) → Linear(144, 10), new weights",
    ]
    text = str(conversion)
    before, after = conversion.parameters
    assert f"{before:,} → {after:,} parameters" in text
    for change in conversion.changes:
        assert any(all(cell in line for cell in change.cells) for line in text.splitlines())


def test_activations_act_along_the_channels() -> None:
    converted = convert(FunctionalVGG(), "or_ail").model
    x = torch.randn(2, 32, 4, 4)
    torch.testing.assert_close(converted.get_submodule("relu")(x), activation("or_ail", 1)(x), rtol=0, atol=0)
    flat = torch.randn(2, 96)
    torch.testing.assert_close(converted.get_submodule("relu_2")(flat), activation("or_ail", -1)(flat), rtol=0, atol=0)


def test_seeded_conversions_are_equal() -> None:
    model = vgg()
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(convert(model, "or_ail").model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_pre_activation_stream_keeps_its_width() -> None:
    converted = convert(PreActivationResNet(), "or_ail").model
    assert converted.stem.out_channels == 32
    assert [converted.blocks[0].conv1.in_channels, converted.blocks[0].conv1.out_channels] == [16, 32]
    assert [converted.blocks[0].conv2.in_channels, converted.blocks[0].conv2.out_channels] == [16, 32]
    assert converted.head.in_features == 32


def test_classic_residual_sum_is_refused_by_name_and_can_be_left() -> None:
    with pytest.raises(ValueError, match=r"or_ail \(2→1\) at layer1\.0\.relu_1 .*layer1\.1\.relu_1.*residual sum.*skip_pinned"):
        convert(ClassicResNet(), "or_ail")
    left = convert(ClassicResNet(), "or_ail", skip_pinned=True)
    assert list(left.left) == ["layer1.0.relu_1", "layer1.1.relu_1", "layer2.1.relu_1"]
    stem, inner = left.model.get_submodule("stem"), left.model.get_submodule("layer1.0.conv1")
    # The stream stays 32 wide, so what the activation of the stem reads is twice that.
    assert (stem.out_channels, inner.in_channels, inner.out_channels) == (64, 32, 32)
    kept = convert(ClassicResNet(), "or_ail", keep=["relu", "*.relu_1"])
    assert kept.model.get_submodule("stem").out_channels == 32
    assert not convert(ClassicResNet(), "or_and_ail_d").left


def test_attention_fixes_the_stream_and_the_mask_still_works() -> None:
    converted = convert(TransformerBlock(), "or_ail", budget="params").model
    assert isinstance(converted, TransformerBlock)
    assert converted.fc1.in_features == converted.fc2.out_features == 48
    assert converted.fc1.out_features == 2 * converted.fc2.in_features > 192
    assert converted(tokens(), mask=torch.zeros(7, 7)).shape == (2, 7, 48)


@pytest.mark.parametrize("fast", [True, False])
def test_torchs_encoder_takes_no_fast_path_round_the_new_activation(fast: bool) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    converted = convert(encoder, "max").model.eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad() if fast else torch.enable_grad():
        y = converted(x, src_key_padding_mask=padding)
    layer = converted.layers[0]
    hidden = layer.norm1(x + layer.self_attn(x, x, x, key_padding_mask=padding, need_weights=False)[0])
    pairs = layer.linear1(hidden).unflatten(-1, (8, 2)).amax(-1)
    expected = layer.norm2(hidden + layer.linear2(pairs))
    torch.testing.assert_close(y[~padding], expected[~padding], rtol=1e-4, atol=1e-5)


def test_only_keep_and_replace_choose() -> None:
    model = vgg()
    assert [change.layer for change in convert(model, "silu", only="1*").changes] == ["10"]
    assert [change.layer for change in convert(model, "silu", keep=["2", "10"]).changes] == ["6"]
    assert [change.layer for change in convert(model, "silu", replace=[nn.GELU]).changes] == ["10"]
    assert [change.layer for change in convert(FunctionalVGG(), "silu", replace=["leaky_relu"]).changes] == ["leaky_relu"]
    assert convert(model, "silu", only="1*").left == {"2": "as asked", "6": "as asked"}
    with pytest.raises(ValueError, match="no activation is called 'head'; there are 2, 6, 10"):
        convert(model, "silu", keep="head")
    with pytest.raises(ValueError, match="cannot replace 'rely'"):
        convert(model, "silu", replace=["rely"])


def test_the_class_and_the_forward_stay_and_only_calls_of_functions_are_redirected() -> None:
    assert type(convert(PreActivationResNet(), "or_ail").model) is PreActivationResNet
    converted = convert(FunctionalVGG(), "or_ail").model
    assert isinstance(converted, FunctionalVGG)
    assert type(converted).__name__ == "FunctionalVGG"
    assert inspect.signature(converted.forward) == inspect.signature(FunctionalVGG().forward)


def test_a_redirected_forward_follows_the_mode_and_can_be_copied_and_pickled() -> None:
    x = images()
    for model in (FunctionalVGG().train(), FunctionalVGG().eval()):
        converted = convert(model, "or_ail").model
        assert converted.training == model.training
        for copied in (converted, pickle.loads(pickle.dumps(converted)), copy.deepcopy(converted)):
            copied.eval()
            torch.testing.assert_close(copied(x), copied(x), rtol=0, atol=0)
            copied.train()
            assert not torch.equal(copied(x), copied(x))


def test_a_forward_that_branches_on_training_still_does() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            hidden = F.relu(self.fc(x))
            return hidden * 2 if self.training else hidden

    converted, x = convert(Branching(), "silu").model, torch.randn(2, 4)
    assert torch.equal(converted.train()(x), 2 * converted.eval()(x))
    assert torch.equal(converted(x), F.silu(converted.fc(x)))
