"""Conversion where layers are connected in unusual ways, or the activations are gates or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn import Gate, activation
from boolit.nn.conversion import Conversion, convert

SPECS = ["or_ail", "or_and_ail_d", "or_and_xnor_nail_d", "or_xnor_ail_p", "max_k4"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small are only slowed down by sharing them out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def check_runs(conversion: Conversion, original: nn.Module, x: Tensor) -> None:
    """Same output shape, and a gradient for every parameter."""
    y = conversion.model(x)
    assert y.shape == original(x).shape
    y.square().sum().backward()
    assert all(parameter.grad is not None for parameter in conversion.model.parameters())


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


class Sketch(nn.Module):
    """A net of few layers with a forward of its own."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def _chunked(net: nn.Module, x: Tensor) -> Tensor:
    one, other = net.a(x).chunk(2, dim=-1)
    return net.b(torch.cat([F.relu(one), other], -1))


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
@pytest.mark.parametrize("spec", [*SPECS, "or_ail_k3"])
@pytest.mark.parametrize("budget", ["width", "params"])
def test_connections_of_all_kinds(sketch: str, spec: str, budget: str) -> None:
    make, data = SKETCHES[sketch]
    model = make()
    check_runs(convert(model, spec, budget=budget), model, data())


def test_a_layer_whose_activated_output_meets_another_is_widened() -> None:
    converted = convert(SKETCHES["product with a gate"][0](), "or_ail").model
    assert (converted.a.out_features, converted.b.out_features, converted.c.in_features) == (24, 12, 12)


@pytest.mark.parametrize(
    ("model", "width"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.AvgPool1d(2), nn.Linear(6, 2)), 24),
        (lambda: nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)), 12),
        (lambda: Sketch(lambda net, x: net.b(net.norm(F.relu(net.a(x)))), **_normed(12, (3, 12))), 24),
        (lambda: Sketch(lambda net, x: net.b(net.norm(F.relu(net.a(x)))), **_normed(12, (12,))), 12),
        (lambda: Sketch(lambda net, x: net.b(F.relu(y := net.a(x)) * y.shape[-1] ** -0.5), **_normed(12, (12,))), 12),
        (lambda: Sketch(lambda net, x: net.b(F.relu(net.a(x)).mean(axis=-2)), **_normed(12, (12,))), 12),
        (lambda: Sketch(lambda net, x: net.b((y := F.relu(net.a(x))).view(y.size(0) * 3, -1)), **_normed(12, (12,))), 24),
        (lambda: Sketch(lambda net, x: F.relu(net.a(x)).squeeze(-1).mean(-1), **_normed(1, (1,))), 2),
        (lambda: Sketch(lambda net, x: net.b(F.relu(net.a(x)).unflatten(-1, (3, 4)).flatten(-2)), **_normed(12, (12,))), 24),
    ],
)
def test_only_what_is_not_understood_fixes_a_width(model: Callable[[], nn.Module], width: int) -> None:
    given = model()
    conversion = convert(given, "or_ail")
    x = torch.randn(2, 3, 6)
    assert conversion.model(x).shape == given(x).shape
    assert next(m.out_features for m in conversion.model.modules() if isinstance(m, nn.Linear)) == width


def _normed(width: int, shape: tuple[int, ...]) -> dict[str, nn.Module]:
    return {"a": nn.Linear(6, width), "norm": nn.LayerNorm(shape), "b": nn.Linear(width, 2)}


def test_a_size_in_the_code_follows_where_the_activation_is_a_module() -> None:
    layers = {"a": nn.Conv2d(3, 8, 3), "act": nn.ReLU(), "b": nn.Linear(8 * 6 * 6, 2)}
    model = Sketch(lambda net, x: net.b(net.act(net.a(x)).view(-1, 8 * 6 * 6)), **layers)
    for spec in ("or_ail", "or_and_xnor_nail_d", "silu"):
        check_runs(convert(model, spec), model, images())


def test_a_small_net_of_unlike_layers_comes_near_its_budget() -> None:
    lenet = nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )
    for spec in SPECS:
        before, after = convert(lenet, spec, budget="params").parameters
        assert abs(after / before - 1) < 0.02


def test_parameters_of_the_activation_count() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2000))

        def forward(self, x: Tensor) -> Tensor:
            return x.unflatten(-1, (-1, 2)).prod(-1) * self.scale.mean()

    before, after = convert(mlp(), Scaled, budget="params").parameters
    assert abs(after / before - 1) < 0.01


def test_a_feature_map_without_batch_converts_too() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    assert convert(model, "or_ail").model(torch.randn(3, 8, 8)).shape == (4, 4, 4)


def test_type_and_frozen_parameters_carry_over() -> None:
    model = mlp().double()
    model[0].weight.requires_grad_(False)
    converted = convert(model, "prelu").model
    assert {parameter.dtype for parameter in converted.parameters()} == {torch.float64}
    resized = convert(mlp().double().requires_grad_(False), "max_k4").model
    assert not any(parameter.requires_grad for parameter in resized.parameters())


def test_gates_can_be_converted_back() -> None:
    model = mlp()
    there = convert(model, "or_and_xnor_nail_d")
    back = convert(there.model, "relu", replace=[type(activation("or_and_xnor_nail_d"))])
    assert back.parameters == there.parameters[::-1]
    assert [tuple(p.shape) for p in back.model.parameters()] == [tuple(p.shape) for p in model.parameters()]


def test_gates_that_stay_keep_their_divisor() -> None:
    model = nn.Sequential(
        nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 20), Gate("or", "ail"), nn.Linear(10, 9), nn.ReLU(), nn.Linear(9, 2)
    )
    conversion = convert(model, "or_xnor_ail_p", budget="params")
    check_runs(conversion, model, torch.randn(2, 6))
    assert conversion.model[3] is not model[3]
    assert conversion.model[3].spec == "or_ail"
    partition = nn.Sequential(nn.Linear(6, 20), activation("or_xnor_ail_p"), nn.ReLU(), nn.Linear(10, 2))
    conversion = convert(partition, "or_ail_k3")
    check_runs(conversion, partition, torch.randn(2, 6))
    assert conversion.model[0].out_features == 24


def test_activations_of_boolit_count_by_their_names() -> None:
    model = nn.Sequential(nn.Linear(4, 8), activation("relu"), nn.Linear(8, 8), activation("sigmoid"), nn.Linear(8, 2)).eval()
    conversion = convert(model, "or_ail")
    assert [change.layer for change in conversion.changes] == ["1", "2"]
    assert not any(module.training for module in conversion.model.modules())


def test_an_activation_of_the_users_own_is_replaced_as_a_whole() -> None:
    class Swish(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.tanh(x)

    model = nn.Sequential(nn.Linear(4, 8), Swish(), nn.Linear(8, 2))
    conversion = convert(model, "or_ail", replace=[Swish])
    check_runs(conversion, model, torch.randn(2, 4))
    assert type(conversion.model) is nn.Sequential


@pytest.mark.parametrize(
    "spec", [nn.Tanh, torch.tanh, lambda x: x.unflatten(-1, (-1, 2)).prod(-1), nn.PReLU(), activation("or_ail")]
)
def test_anything_that_acts_can_be_put_in(spec: object) -> None:
    model = mlp()
    check_runs(convert(model, spec), model, torch.randn(3, 20))


def test_arguments_with_defaults_can_be_given_to_a_redirected_forward() -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
            x = self.fc1(x) if scale is None else self.fc1(x) * scale
            return self.fc2(F.relu(x))

    converted = convert(Optional(), "or_ail").model
    assert converted(torch.randn(3, 4), scale=None).shape == (3, 2)
    x = torch.randn(3, 4)
    torch.testing.assert_close(converted(x, scale=torch.ones(8)), converted(x), rtol=0, atol=0)
    assert not torch.equal(converted(x, scale=torch.full((8,), 2.0)), converted(x))


def test_channels_left_of_what_is_interpolated_are_known() -> None:
    class Upsampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Conv1d(4, 8, 3), nn.Conv1d(8, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.after(torch.relu(nn.functional.interpolate(self.before(x), scale_factor=2)))

    model = convert(Upsampled(), "or_ail", budget="params").model
    assert model.before.out_channels == 2 * model.after.in_channels
    assert model(torch.randn(2, 4, 9)).shape == (2, 2, 14)
