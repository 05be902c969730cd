"""Conversion of layers that are connected in unusual ways, of products, and refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn import Gate, activation, convert
from boolit.nn.conversion import Conversion

SPECS = ["or_ail", "or_and_xnor_nail_d", "or_xnor_ail_p", "or_ail_k3"]


def check_runs(conversion: Conversion, original: nn.Module, x: Tensor) -> None:
    y = conversion.model(x)
    assert y.shape == original(x).shape
    y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in conversion.model.parameters())


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


class Sketch(nn.Module):
    """A net of few layers with the forward it is given."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def _chunked(net: nn.Module, x: Tensor) -> Tensor:
    first, second = net.a(x).chunk(2, dim=-1)
    return net.b(torch.cat([F.relu(first), second], -1))


SKETCHES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "shared activation on maps and features": (
        lambda: Sketch(
            lambda net, x: net.c(net.act(net.b(net.act(net.a(x)).flatten(1)))),
            a=nn.Conv2d(3, 8, 3),
            b=nn.Linear(8 * 6 * 6, 12),
            c=nn.Linear(12, 2),
            act=nn.ReLU(),
        ),
        images,
    ),
    "dense connections": (
        lambda: Sketch(
            lambda net, x: net.c(F.relu(torch.cat([y := net.a(x), net.b(F.relu(y))], 1)).mean((2, 3))),
            a=nn.Conv2d(3, 12, 3, padding=1),
            b=nn.Conv2d(12, 8, 3, padding=1),
            c=nn.Linear(20, 2),
        ),
        images,
    ),
    "depthwise and grouped": (
        lambda: Sketch(
            lambda net, x: net.d(F.silu(net.norm(net.c(net.b(F.relu6(net.a(x)))))).mean([-2, -1])),
            a=nn.Conv2d(3, 24, 1),
            b=nn.Conv2d(24, 48, 3, groups=24),
            c=nn.Conv2d(48, 24, 3, groups=4),
            norm=nn.GroupNorm(6, 24),
            d=nn.Linear(24, 2),
        ),
        images,
    ),
    "channels last": (
        lambda: Sketch(
            lambda net, x: net.a(x) + net.c(F.gelu(net.b(net.norm(net.a(x).permute(0, 2, 3, 1))))).permute(0, 3, 1, 2),
            a=nn.Conv2d(3, 8, 1),
            norm=nn.LayerNorm(8),
            b=nn.Linear(8, 24),
            c=nn.Linear(24, 8),
        ),
        images,
    ),
    "product with a gate": (
        lambda: Sketch(
            lambda net, x: net.c(F.silu(net.a(x)) * net.b(x)), a=nn.Linear(6, 12), b=nn.Linear(6, 12), c=nn.Linear(12, 6)
        ),
        lambda: torch.randn(2, 6),
    ),
    "squeeze and excitation": (
        lambda: Sketch(
            lambda net, x: net.d(
                ((y := F.relu(net.a(x))) * torch.sigmoid(net.c(F.relu(net.b(y.mean((2, 3))))))[:, :, None, None]).flatten(1)
            ),
            a=nn.Conv2d(3, 12, 3),
            b=nn.Linear(12, 4),
            c=nn.Linear(4, 12),
            d=nn.Linear(12 * 6 * 6, 2),
        ),
        images,
    ),
    "sequence of convolutions": (
        lambda: nn.Sequential(
            *(nn.Conv1d(3, 12, 3), nn.InstanceNorm1d(12, affine=True), nn.PReLU(12), nn.ConvTranspose1d(12, 6, 3), nn.Tanh()),
            *(nn.ConstantPad1d(1, 0.0), nn.Flatten(), nn.LayerNorm(6 * 18), nn.Linear(6 * 18, 2)),
        ),
        lambda: torch.randn(2, 3, 16),
    ),
    "one layer called again": (
        lambda: Sketch(
            lambda net, x: net.c(F.relu(net.b(F.relu(net.b(net.a(x)))))),
            a=nn.Linear(5, 12),
            b=nn.Linear(12, 12),
            c=nn.Linear(12, 2),
        ),
        lambda: torch.randn(2, 5),
    ),
    "channels broadcast": (
        lambda: Sketch(
            lambda net, x: net.c((F.relu(net.a(x)) * net.b(x)).mean((2, 3))),
            a=nn.Conv2d(3, 12, 3),
            b=nn.Conv2d(3, 1, 3),
            c=nn.Linear(12, 2),
        ),
        images,
    ),
    "permuted, then activated": (
        lambda: Sketch(
            lambda net, x: net.b(F.relu(torch.permute(net.a(x), dims=(0, 2, 3, 1)))), a=nn.Conv2d(3, 12, 3), b=nn.Linear(12, 2)
        ),
        images,
    ),
    "transposed, then activated": (
        lambda: Sketch(lambda net, x: net.b(F.relu(net.a(x).transpose(1, 2))), a=nn.Conv1d(3, 12, 3), b=nn.Linear(12, 2)),
        lambda: torch.randn(2, 3, 8),
    ),
    "chunks": (lambda: Sketch(_chunked, a=nn.Linear(6, 24), b=nn.Linear(24, 2)), lambda: torch.randn(2, 6)),
    "tokens concatenated": (
        lambda: Sketch(
            lambda net, x: net.c(torch.cat([F.relu(net.a(x)), net.b(x)], -2)),
            a=nn.Linear(6, 12),
            b=nn.Linear(6, 12),
            c=nn.Linear(12, 2),
        ),
        lambda: torch.randn(2, 3, 6),
    ),
    "a norm of the input": (
        lambda: nn.Sequential(nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2)),
        lambda: torch.randn(2, 12),
    ),
}


@pytest.mark.parametrize("sketch", SKETCHES)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("budget", ["width", "params"])
def test_connections_of_all_kinds(sketch: str, spec: str, budget: str) -> None:
    make, data = SKETCHES[sketch]
    model, x = make(), data()
    check_runs(convert(model, spec, budget=budget, example=x), model, x)


@pytest.mark.parametrize(
    ("forward", "width"),
    [
        (lambda net, x: net.b(F.relu(net.a(x))), 12),
        (lambda net, x: net.b(net.norm(F.relu(net.a(x)))), 24),  # a norm over positions and channels
        (lambda net, x: net.b(F.relu(y := net.a(x)) * y.shape[-1] ** -0.5), 12),
        (lambda net, x: net.b(F.relu(net.a(x)).mean(axis=-2)), 12),
        (lambda net, x: net.b((y := F.relu(net.a(x))).view(y.size(0) * 3, -1)), 12),
        (lambda net, x: net.b(F.relu(net.a(x)).unflatten(-1, (3, 4)).flatten(-2)), 24),
        (lambda net, x: net.b(F.relu(net.a(x))[..., torch.arange(12)]), 24),
    ],
)
def test_only_what_is_not_understood_fixes_a_width(forward: Callable[..., Tensor], width: int) -> None:
    model, x = Sketch(forward, a=nn.Linear(6, 12), norm=nn.LayerNorm((3, 12)), b=nn.Linear(12, 2)), torch.randn(2, 3, 6)
    converted = convert(model, "or_ail", example=x).model
    assert converted(x).shape == model(x).shape
    assert converted.a.out_features == width


def test_parameters_of_the_activation_count() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2000))

        def forward(self, x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, 2)).prod(-1) * self.scale.mean()

    before, after = convert(mlp(), Scaled, budget="params").parameters
    assert abs(after / before - 1) < 0.01


def test_dtype_and_frozen_parameters_carry_over() -> None:
    converted = convert(mlp().double(), "prelu").model
    assert {parameter.dtype for parameter in converted.parameters()} == {torch.float64}
    resized = convert(mlp().requires_grad_(False), "max_k4").model
    assert not any(parameter.requires_grad for parameter in resized.parameters())


def test_gates_that_stay_keep_their_width() -> None:
    model = nn.Sequential(
        nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 20), Gate("or", "ail"), nn.Linear(10, 9), nn.ReLU(), nn.Linear(9, 2)
    )
    conversion = convert(model, "or_xnor_ail_p", budget="params", replace=["relu"])
    check_runs(conversion, model, torch.randn(2, 6))
    assert conversion.model[3].spec == "or_ail"
    assert conversion.model[2].out_features == 20


def test_an_activation_of_the_users_own_is_replaced_as_a_whole() -> None:
    class Swish(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.tanh(x)

    model = nn.Sequential(nn.Linear(4, 8), Swish(), nn.Linear(8, 2))
    check_runs(convert(model, "or_ail", replace=[Swish]), model, torch.randn(2, 4))


@pytest.mark.parametrize(
    "spec", [nn.Tanh, torch.tanh, lambda x: x.unflatten(-1, (-1, 2)).prod(-1), nn.PReLU(), activation("or_ail", dim=-1)]
)
def test_anything_that_acts_can_be_put_in(spec: Any) -> None:
    model = mlp()
    check_runs(convert(model, spec), model, torch.randn(3, 20))


# Products


class Fused(nn.Module):
    def __init__(self, forward: Callable[..., Tensor]) -> None:
        super().__init__()
        self.w_in, self.w_out, self.glu, self.product = nn.Linear(6, 16), nn.Linear(8, 6), nn.GLU(), forward

    def forward(self, x: Tensor) -> Tensor:
        return self.w_out(self.product(self, self.w_in(x)))


def _gated(pair: tuple[Tensor, ...]) -> Tensor:
    return F.silu(pair[0]) * pair[1]


SPELLINGS: dict[str, Callable[..., Tensor]] = {
    "chunk": lambda _, y: _gated(y.chunk(2, -1)),
    "split": lambda _, y: _gated(torch.split(y, 8, dim=-1)),
    "slices": lambda _, y: F.silu(y[..., :8]) * y[..., 8:],
    "unbind": lambda _, y: _gated(y.view(*y.shape[:-1], 2, 8).unbind(-2)),
    "unflatten": lambda _, y: _gated(y.unflatten(-1, (2, -1)).unbind(-2)),
    "glu": lambda _, y: F.glu(y),
    "nn.GLU": lambda net, y: net.glu(y),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("budget", ["width", "params"])
def test_a_fused_gated_layer_gets_a_gate_of_its_halves(spelling: str, budget: str) -> None:
    model, x = Fused(SPELLINGS[spelling]), torch.randn(3, 5, 6)
    for spec in ("or_ail", "max", "or_xnor_ail_p", "implies_ail"):
        conversion = convert(model, spec, budget=budget)
        converted = conversion.model
        assert f" → {spec}_halves" in next(iter(conversion.replaced.values()))
        assert not conversion.resized
        expected = converted.w_out(activation(f"{spec}_halves", dim=-1)(converted.w_in(x)))
        torch.testing.assert_close(converted(x), expected)
    both = convert(model, "or_and_ail_d").model
    assert (both.w_in.out_features, both.w_out.in_features) == (16, 16)
    again = convert(both, "or_ail").model
    assert (again.w_in.out_features, again.w_out.in_features) == (16, 8)


def test_a_product_of_a_tensor_with_itself_is_not_a_gated_layer() -> None:
    model = Fused(lambda _, y: F.silu(h := y[..., :8]) * h)
    with pytest.raises(ValueError, match="at silu: the product in Fused makes its input as wide as its output"):
        convert(model, "or_ail")
    assert convert(model, "relu").replaced == {"silu": "silu(…) → relu"}


class Gated(nn.Module):
    def __init__(self, act: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__()
        self.gate, self.up, self.down, self.act = nn.Linear(6, 12), nn.Linear(6, 12), nn.Linear(12, 6), act

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * 2
        return self.down(self.act(self.gate(scaled)) * self.up(scaled)) * 1


@pytest.mark.parametrize("act", [F.silu, nn.SiLU()])
def test_a_gated_product_becomes_the_gate_of_its_factors_on_request(act: Callable[[Tensor], Tensor]) -> None:
    model, x = Gated(act), torch.randn(3, 6)
    conversion = convert(model, "max", gated="replace")
    assert conversion.parameters[0] == conversion.parameters[1]
    converted = conversion.model
    expected = converted.down(torch.maximum(converted.gate(2 * x), converted.up(2 * x)))
    torch.testing.assert_close(converted(x), expected)
    kept = convert(model, "max").model
    assert (kept.gate.out_features, kept.up.out_features, kept.down.in_features) == (12, 6, 6)
    again = convert(converted, "min").model
    torch.testing.assert_close(again(x), again.down(torch.minimum(again.gate(2 * x), again.up(2 * x))))
    both = convert(model, "max_min_d", gated="replace", budget="params")
    assert both.model.down.in_features == 2 * both.model.up.out_features


def test_what_gated_replace_cannot_do_is_reported() -> None:
    class Masked(Gated):
        def forward(self, x: Tensor) -> Tensor:
            return self.down(self.act(self.gate(x)) * x.repeat(1, 2))

    conversion = convert(Masked(), "or_and_ail_d", gated="replace")
    assert conversion.left == {"product of silu": "one factor is not the output of a layer"}
    assert "product of silu: left, one factor is not" in str(conversion)
    with pytest.raises(ValueError, match="gated='replace' needs an activation that reads pairs, and relu does not"):
        convert(Gated(), "relu", gated="replace")
    with pytest.raises(ValueError, match="gated='replace' finds no product"):
        convert(mlp(), "or_ail", gated="replace")


# Models that run on an example


def test_the_model_given_and_the_generator_are_undisturbed() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.layers(x + torch.randn_like(x))

    model = Noisy()
    state, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    torch.manual_seed(1)
    conversion = convert(model, "silu", example=torch.randn(3, 4))
    after = torch.rand(3)
    torch.manual_seed(1)
    torch.randn(3, 4)
    assert torch.equal(after, torch.rand(3))
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
        assert torch.equal(conversion.model.state_dict()[name], state[name])
    assert [module.training for module in model.modules()] == modes


class Renamed(nn.Linear):
    """A subclass that computes what its base does."""


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc1, self.act, self.fc2 = nn.LSTM(4, 12), nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x)
        return self.fc2(self.act(self.fc1(y[:, -1])))


class InADict(nn.Module):
    """Its layers are not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = {"a": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))}

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["a"](x)


@pytest.mark.parametrize(
    ("make", "shape", "layer", "width"),
    [
        (Recurrent, (2, 5, 4), "fc2", 12),
        (lambda: nn.Sequential(Renamed(4, 8), nn.ReLU(), Renamed(8, 2)), (2, 4), "2", 4),
        (lambda: nn.Sequential(weight_normed(4, 8), nn.ReLU(), nn.Linear(8, 2)), (2, 4), "2", 4),
    ],
)
def test_layers_of_many_kinds(make: Callable[[], nn.Module], shape: tuple[int, ...], layer: str, width: int) -> None:
    model, x = make(), torch.randn(shape)
    conversion = convert(model, "or_ail", example=x)
    check_runs(conversion, model, x)
    assert conversion.model.get_submodule(layer).in_features == width


class Called(nn.Module):
    """One function in two modules, one within the other, of which one is left; and a size that is written out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.conv, self.inner, self.fc1, self.fc2 = nn.Conv2d(3, 8, 3), inner, nn.Linear(8 * 36, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(F.relu(self.conv(x)))
        return self.fc2(F.relu(self.fc1(x.reshape(x.shape[0], -1))))


class ReluInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


def test_calls_in_a_module_inside_are_not_those_of_the_module_around_it() -> None:
    for inner, name in ((ReluInside(), "inner.relu"), (nn.ReLU(), "inner")):
        for example in (None, images()):
            converted = convert(Called(inner), "max", keep=name, example=example).model
            x = images()
            hidden = F.relu(converted.conv(x).unflatten(1, (4, 2)).amax(2))
            hidden = converted.fc1(hidden.flatten(1)).unflatten(1, (4, 2)).amax(2)
            torch.testing.assert_close(converted(x), converted.fc2(hidden))
            compiled = torch.compile(converted, backend="eager")
            torch.testing.assert_close(compiled(x), converted(x))


def test_calls_of_a_shared_module_and_of_a_function_are_told_apart() -> None:
    layers = {"a": nn.Linear(4, 8), "b": nn.Linear(8, 8), "c": nn.Linear(8, 8), "d": nn.Linear(8, 2), "act": nn.ReLU()}
    model = Sketch(lambda net, x: net.d(F.relu(net.c(net.act(net.b(net.act(net.a(x))))))), **layers)
    converted, x = convert(model, "max", keep="act_1").model, torch.randn(3, 4)
    hidden = F.relu(converted.b(converted.a(x).unflatten(-1, (4, 2)).amax(-1)))
    torch.testing.assert_close(converted(x), converted.d(converted.c(hidden).unflatten(-1, (4, 2)).amax(-1)))


def test_turns_of_two_conversions_are_refused() -> None:
    layers = {name: nn.Linear(4 if name == "a" else 8, 8) for name in "abcd"} | {"out": nn.Linear(8, 2)}

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        return net.out(net.act2(net.d(net.act2(net.c(net.act1(net.b(net.act1(net.a(x)))))))))

    model = Sketch(forward, **layers, act1=nn.ReLU(), act2=nn.ReLU())
    first = convert(model, "max", keep="act1_1").model
    with pytest.raises(ValueError, match="two conversions give the calls of shared modules different activations"):
        convert(first, "min", keep="act2_1")
    assert convert(first, "min").model(torch.randn(3, 4)).shape == (3, 2)


@dataclass
class Output:
    hidden: Tensor
    sizes: tuple[int, ...]


def test_tensors_in_a_dataclass_that_is_returned_keep_their_shapes() -> None:
    class Returning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Output:
            return Output(F.relu(self.fc2(F.relu(self.fc1(x)))), tuple(x.shape))

    converted = convert(Returning(), "or_ail", example=(x := torch.randn(3, 4),)).model
    assert converted(x).hidden.shape == (3, 8)
    assert (converted.fc2.in_features, converted.fc2.out_features) == (4, 16)


# Refusals


def weight_normed(inputs: int, outputs: int) -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(inputs, outputs))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    return model


def summed(other: nn.Module) -> nn.Module:
    layers = {"a": nn.Linear(6, 6), "other": other, "act": nn.ReLU(), "b": nn.Linear(6, 2)}
    return Sketch(lambda net, x: net.b(net.act(net.a(x) + net.other(x))), **layers)


def shuffled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(1, 4, 3))


@pytest.mark.parametrize(
    ("model", "spec", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU()), "or_and_xnor_nail_d", "at 1: its 8 channels .* the model's output"),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), "or_ail", "at 0: its input does not come from a layer"),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.ReLU()), "or_ail", "at 2: it acts after a flatten"),
        (
            lambda: nn.Sequential(weight_normed(4, 8), nn.ReLU(), weight_normed(8, 2)),
            "or_ail",
            "at 1: its output is fixed by 2",
        ),
        (tied, "or_ail", "at 1: its output is fixed by 2, whose parameters are shared"),
        (lambda: summed(nn.Identity()), "or_xnor_ail_p", "act: its 6 channels are fixed by the operand of add that is not a"),
        (lambda: summed(weight_normed(6, 6)), "or_xnor_ail_p", "at act: its 6 channels are fixed by other, whose parameters"),
        (shuffled, "or_and_xnor_nail_d", "at 1: its 4 channels are fixed by the PixelShuffle 2"),
        (
            lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 2)),
            "or_ail",
            "at 2: it acts on the output of 1",
        ),
        (
            lambda: Sketch(lambda net, x: net.b((y := net.a(x)) + F.relu(y)), a=nn.Linear(4, 8), b=nn.Linear(8, 2)),
            "or_ail",
            "at relu: the sum in Sketch makes its input as wide as its output",
        ),
        (InADict, "or_ail", "at relu: its input does not come from a layer"),
    ],
)
def test_refusals_name_the_place_and_the_cause(model: Callable[[], nn.Module], spec: str, words: str) -> None:
    built = model()
    example = torch.randn(2, 4) if isinstance(built, InADict) else None
    with pytest.raises(ValueError, match=words):
        convert(built, spec, example=example)


def test_a_fixed_output_is_kept_by_widening_the_layer_before() -> None:
    model = shuffled()
    conversion = convert(model, "or_ail")
    assert conversion.model(x := images()).shape == model(x).shape
    assert conversion.replaced == {"1": "ReLU() → or_ail, 8 → 4 channels"}
    assert conversion.resized == {"0": "Conv2d(3, 4) → Conv2d(3, 8), 112 → 224 parameters"}


def test_a_budget_that_cannot_be_kept_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    with pytest.raises(ValueError, match="cannot keep 40 parameters: with the width fixed at 1, the nearest is 80"):
        convert(model, "or_ail", budget="params")
    with pytest.raises(ValueError, match="cannot keep 192 FLOPs"):
        convert(model, "or_ail", budget="flops")


def test_models_that_do_not_run_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Sequential does not run on the example: .*keyword"):
        convert(mlp(), "or_ail", example=torch.randn(2, 5))
    model = Sketch(lambda net, x: net.b(net.act(net.a(x["input"]))), a=nn.Linear(4, 8), act=nn.ReLU(), b=nn.Linear(8, 2))
    with pytest.raises(ValueError, match="cannot tell what Sketch reads; pass example="):
        convert(model, "or_ail")
