"""Conversion of whole models: they run, keep what can be kept, and report what was changed."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

from boolit.nn import MLP, Activation, activation, convert
from boolit.nn.conversion import Conversion
from boolit.nn.width import count_parameters, width_for_budget

SPECS = ["or_ail", "or_and_ail_d", "or_and_xnor_nail_d", "or_xnor_ail_p", "silu", "max_k4"]


def mlp(widths: tuple[int, ...] = (128, 128), batch_norm: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    features = 20
    for width in widths:
        layers += [nn.Linear(features, width), *([nn.BatchNorm1d(width)] if batch_norm else []), nn.ReLU()]
        features = width
    return nn.Sequential(*layers, nn.Linear(features, 5))


class FunctionalVGG(nn.Module):
    """Activations as calls of all kinds, and a dropout that depends on the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)
        self.fc1, self.fc2, self.fc3 = nn.Linear(64 * 2 * 2, 96), nn.Linear(96, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
        x = self.fc1(x.flatten(1)).relu_()
        x = F.dropout(x, 0.5, training=self.training)
        return self.fc3(F.leaky_relu(self.fc2(x), 0.1))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 12), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.fc1(F.relu(self.conv(x)).view(-1, 8 * 36)).chunk(2, -1)
        return self.fc2(F.silu(gate) * up)


class PreActivationBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(self.relu(self.norm2(self.conv1(self.relu(self.norm1(x))))))


class ClassicBlock(PreActivationBlock):
    """Post-activation, with one ReLU module for both places."""

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out += x
        return self.relu(out)


def resnet(block: type[PreActivationBlock]) -> nn.Sequential:
    head = (nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    middle = (nn.Conv2d(32, 64, 3, 2), nn.ReLU(), block(64)) if block is ClassicBlock else (nn.Conv2d(32, 64, 3, 2), block(64))
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *[nn.ReLU()] * (block is ClassicBlock), block(32), *middle, *head)


class InvertedBlock(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide, self.adds = 4 * inputs, inputs == outputs and stride == 1
        self.layers = nn.Sequential(
            *(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()),
        *(InvertedBlock(16, 16, 1), InvertedBlock(16, 24, 2), InvertedBlock(24, 24, 1)),
        *(nn.Conv2d(24, 96, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10)),
    )


class TransformerBlock(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2, self.fc1 = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.act, self.fc2 = nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden = self.norm1(x)
        x = x + self.attention(hidden, hidden, hidden, attn_mask=mask, need_weights=False)[0]
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


def tokens() -> Tensor:
    return torch.randn(2, 7, 48)


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (mlp, lambda: torch.randn(3, 20)),
    "functional vgg": (FunctionalVGG, images),
    "pre-activation resnet": (lambda: resnet(PreActivationBlock), images),
    "classic resnet": (lambda: resnet(ClassicBlock), images),
    "mobilenet": (mobilenet, images),
    "transformer block": (TransformerBlock, tokens),
    "torch's encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 192, batch_first=True), 2), tokens),
}


def check_runs(conversion: Conversion, original: nn.Module, x: Tensor) -> None:
    y = conversion.model(x)
    assert y.shape == original(x).shape
    y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in conversion.model.parameters())
    assert conversion.parameters == (count_parameters(original), count_parameters(conversion.model))


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("budget", ["width", "params"])
def test_every_model_runs_with_every_map(net: str, spec: str, budget: str) -> None:
    make, data = NETS[net]
    model = make()
    conversion = convert(model, spec, budget=budget, skip_pinned=net == "classic resnet")
    check_runs(conversion, model, data())
    assert all(f" → {spec}" in change for change in conversion.replaced.values())
    assert any(isinstance(module, Activation) and module.spec == spec for module in conversion.model.modules())
    before, after = conversion.parameters
    if budget == "params":
        assert abs(after / before - 1) < 0.02
    elif activation(spec).feature_factor == 1:
        assert after == before


@pytest.mark.parametrize("net", NETS)
def test_the_model_is_untouched_and_weights_of_kept_shapes_are_kept(net: str) -> None:
    model = NETS[net][0]()
    before, text = copy.deepcopy(model.state_dict()), repr(model)
    conversion = convert(model, "or_ail", skip_pinned=True)
    assert repr(model) == text
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    resized = set(conversion.resized)
    after = conversion.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in after.items() if name.rpartition(".")[0] not in resized)
    assert {name.rpartition(".")[0] for name in after if after[name].shape != before[name].shape} <= resized


@pytest.mark.parametrize("net", ["functional vgg", "classic resnet", "transformer block"])
def test_the_same_activation_computes_the_same(net: str) -> None:
    make, data = NETS[net]
    model, x, old = make().eval(), data(), "gelu" if net == "transformer block" else "relu"
    torch.testing.assert_close(convert(model, old, replace=[old]).model(x), model(x), rtol=0, atol=0)


@given(
    widths=st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple),
    spec=st.sampled_from([*SPECS, "or_ail_k3"]),
    norm=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_width_keeps_the_nearest_multiple_before_every_activation(widths: tuple[int, ...], spec: str, norm: bool) -> None:
    model = mlp(widths, norm)
    conversion = convert(model, spec)
    check_runs(conversion, model, torch.randn(3, 20))
    width_multiple = activation(spec).width_multiple
    linear = [layer for layer in conversion.model if isinstance(layer, nn.Linear)]
    for layer, width in zip(linear[:-1], widths, strict=True):
        assert layer.out_features % width_multiple == 0
        assert abs(layer.out_features - width) <= width_multiple / 2 or layer.out_features == width_multiple
    for first, second in pairwise(linear):
        assert second.in_features == activation(spec).out_features(first.out_features)


def test_width_is_kept_before_every_activation_of_a_cnn_with_depthwise_layers() -> None:
    width, block = {"2": 16, "7": 96}, {"3": 64, "4": 64, "5": 96}
    width |= {f"{name}.layers.{i}": wide for name, wide in block.items() for i in (2, 5)}
    conversion = convert(mobilenet(), "or_ail")
    assert conversion.replaced == {name: f"ReLU6() → or_ail, {wide} → {wide // 2} channels" for name, wide in width.items()}


@given(width=st.integers(30, 300), depth=st.integers(1, 3), spec=st.sampled_from(["or_ail", "or_and_xnor_nail_d", "max_k4"]))
@settings(max_examples=12, deadline=None)
def test_params_finds_the_width_that_the_formula_does(width: int, depth: int, spec: str) -> None:
    act, model = activation(spec), mlp((width,) * depth)
    converted, target = convert(model, spec, budget="params").model, count_parameters(model)

    def count(n: int) -> int:
        return count_parameters(MLP(20, [n] * depth, 5, spec, normalization="batch"))

    best = width_for_budget(count, target, act.width_multiple)
    result = [layer.out_features for layer in converted if isinstance(layer, nn.Linear)][:-1]
    if len(set(result)) == 1:
        assert abs(count(result[0]) - target) == abs(count(best) - target)
    else:  # equal layers differ only if the best common width misses by more than 1 %
        assert abs(count(best) / target - 1) > 0.01
        assert abs(count_parameters(converted) - target) < abs(count(best) - target)


@pytest.mark.parametrize("net", ["mlp", "functional vgg", "mobilenet", "transformer block"])
@pytest.mark.parametrize("spec", ["or_ail", "or_and_xnor_nail_d"])
def test_flops_are_kept(net: str, spec: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode  # imports Triton

    make, data = NETS[net]
    model, x = make(), data()
    conversion = convert(model, spec, budget="flops", example=x)
    counts = []
    for each in (model, conversion.model):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            each(x)
        counts.append(counter.get_total_flops())
    assert abs(counts[1] / counts[0] - 1) < 0.02
    measured = conversion.measure(x, steps=1)
    assert measured["FLOPs"] == tuple(counts)
    assert measured["parameters"] == conversion.parameters
    assert min(measured["seconds"]) > 0


@pytest.mark.parametrize("budget", ["params", "flops"])
def test_depthwise_layers_stay_depthwise_under_a_budget(budget: str) -> None:
    """torch is slow with several filters per channel."""
    converted = convert(mobilenet(), "or_ail", budget=budget).model
    layers = [layer for layer in converted.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1]
    assert len(layers) == 3
    assert all(layer.in_channels == layer.out_channels == layer.groups for layer in layers)


def test_the_report_lists_all_changes() -> None:
    conversion = convert(FunctionalVGG(), "or_and_xnor_nail_d")
    assert str(conversion).splitlines()[1:] == [
        "  relu: relu(…) → or_and_xnor_nail_d, 32 → 48 channels",
        "  relu_1: relu(…) → or_and_xnor_nail_d, 64 → 96 channels",
        "  relu_2: relu(…) → or_and_xnor_nail_d, 96 → 144 channels",
        "  leaky_relu: leaky_relu(…) → or_and_xnor_nail_d, 64 → 96 channels",
        "  conv2: Conv2d(32, 64) → Conv2d(48, 64), 18,432 → 27,648 parameters",
        "  fc1: Linear(256, 96) → Linear(384, 96), 24,672 → 36,960 parameters",
        "  fc2: Linear(96, 64) → Linear(144, 64), 6,208 → 9,280 parameters",
        "  fc3: Linear(64, 10) → Linear(96, 10), 650 → 970 parameters",
    ]


def test_activations_act_along_the_channels() -> None:
    converted = convert(FunctionalVGG(), "or_ail").model
    x, flat = torch.randn(2, 32, 4, 4), torch.randn(2, 96)
    torch.testing.assert_close(converted.get_submodule("relu")(x), activation("or_ail", dim=1)(x), rtol=0, atol=0)
    torch.testing.assert_close(converted.get_submodule("relu_2")(flat), activation("or_ail", dim=-1)(flat), rtol=0, atol=0)
    unbatched = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    assert convert(unbatched, "or_ail").model(torch.randn(3, 8, 8)).shape == (4, 4, 4)


def test_seeded_conversions_are_equal() -> None:
    model, states = FunctionalVGG(), []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(convert(model, "or_ail").model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_classic_residual_sum_is_refused_for_that_sum_and_can_be_left() -> None:
    model = resnet(ClassicBlock)
    with pytest.raises(ValueError, match=r"at 2\.relu_1 \(and .*: the sum in 2 makes its input as wide as the output of 1;"):
        convert(model, "or_ail")
    left = convert(model, "or_ail", skip_pinned=True)
    assert {"2.relu_1", "5.relu_1"} <= set(left.left)
    assert (left.model[0].out_channels, left.model[2].conv1.in_channels) == (32, 16)
    assert convert(model, "or_ail", keep=["1", "4", "6", "*.relu_1"]).model[0].out_channels == 32
    assert not convert(model, "or_and_ail_d").left


def test_attention_fixes_the_stream_and_the_mask_still_works() -> None:
    converted = convert(TransformerBlock(), "or_ail", budget="params").model
    assert converted.fc1.in_features == converted.fc2.out_features == 48
    assert converted.fc1.out_features == 2 * converted.fc2.in_features > 192
    assert converted(tokens(), mask=torch.zeros(7, 7)).shape == (2, 7, 48)


@pytest.mark.parametrize("fast", [True, False])
def test_torchs_encoder_takes_no_fast_path_around_the_new_activation(fast: bool) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    converted = convert(encoder, "max").model.eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad() if fast else torch.enable_grad():
        y = converted(x, src_key_padding_mask=padding)
    layer = converted.layers[0]
    hidden = layer.norm1(x + layer.self_attn(x, x, x, key_padding_mask=padding, need_weights=False)[0])
    expected = layer.norm2(hidden + layer.linear2(layer.linear1(hidden).unflatten(-1, (8, 2)).amax(-1)))
    torch.testing.assert_close(y[~padding], expected[~padding])


def test_only_keep_and_replace_select() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.Sigmoid())
    assert [*convert(model, "silu").replaced] == ["1", "3"]
    assert convert(model, "silu", only="1").left == {"3": "as requested"}
    assert convert(model, "silu", keep=["1"]).left == {"1": "as requested"}
    assert [*convert(model, "silu", replace=["gelu", nn.Sigmoid]).replaced] == ["3", "5"]
    with pytest.raises(ValueError, match=r"no activation is called '7'; there are 1, 3"):
        convert(model, "silu", only="7")
    with pytest.raises(ValueError, match="cannot replace 'rely'"):
        convert(model, "silu", replace=["rely"])


def test_calls_of_functions_are_replaced_and_the_class_stays() -> None:
    x = images()
    for model in (FunctionalVGG().train(), FunctionalVGG().eval()):
        converted = convert(model, "or_ail").model
        assert type(converted) is FunctionalVGG
        assert inspect.signature(converted.forward) == inspect.signature(model.forward)
        assert converted.training == model.training
        expected = converted.eval()(x)
        for copied in (pickle.loads(pickle.dumps(converted)), copy.deepcopy(converted)):
            torch.testing.assert_close(copied.eval()(x), expected, rtol=0, atol=0)
            copied.train()
            assert not torch.equal(copied(x), copied(x))


@pytest.mark.parametrize("net", ["functional", "classic resnet"])
def test_converted_models_compile_without_graph_breaks(net: str) -> None:
    x = images()
    model = Functional() if net == "functional" else resnet(ClassicBlock)
    converted = convert(model, "max", skip_pinned=True).model.eval()
    assert type(converted) is type(model)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(converted, fullgraph=True, backend="eager")(x), converted(x))
    torch.testing.assert_close(torch.export.export(converted, (x,)).module()(x), converted(x))


@pytest.mark.parametrize("net", NETS)
def test_a_converted_model_can_be_converted_again(net: str) -> None:
    make, data = NETS[net]
    model, x = make(), data()
    first = convert(model, "or_ail", skip_pinned=True)
    second = convert(first.model, "or_and_xnor_nail_d", skip_pinned=True)
    check_runs(second, first.model, x)
    assert "or_ail" not in {module.spec for module in second.model.modules() if isinstance(module, Activation)}
    back = convert(second.model, "relu", skip_pinned=True).model
    if net not in ("classic resnet", "mobilenet"):  # in these, widths after the activations were kept
        assert [tuple(p.shape) for p in back.parameters()] == [tuple(p.shape) for p in model.parameters()]
    assert back(x).shape == model(x).shape


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: 5, TypeError, "model must be an nn.Module, got int"),
        (
            lambda: torch.jit.trace(nn.Sequential(nn.Linear(2, 2)), torch.zeros(3, 2)),
            TypeError,
            "the model is a ScriptModule, .* before scripting",
        ),
        (lambda: prune.l1_unstructured(m := nn.Linear(4, 4), "weight", 0.5) and m, ValueError, "the model is pruned; .*remove"),
        (lambda: torch.compile(mlp(), backend="eager"), ValueError, r"compiled; convert model\._orig_mod"),
        (lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU()), ValueError, "0 is a LazyLinear that has seen no input"),
        (lambda: nn.Sequential(nn.Linear(3, 3)), ValueError, "Sequential has none of the activations .*relu"),
        (lambda: nn.Bilinear(3, 3, 3), ValueError, r"cannot tell what Bilinear reads; pass example="),
    ],
)
def test_what_cannot_be_converted_gets_one_line(make: Callable[[], nn.Module], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        convert(make(), "or_ail")
    assert "\n" not in str(caught.value)
    for wrong in ({"gated": "no"}, {"budget": "parameters"}):
        with pytest.raises(ValueError, match=f"unknown {next(iter(wrong))} '{next(iter(wrong.values()))}'; choose"):
            convert(mlp(), "or_ail", **wrong)
