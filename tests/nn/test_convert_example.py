"""Conversion of models that are run on an example: what a trace cannot follow, and weights that survive."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boolit.nn import activations, convert
from boolit.nn.conversion.sites import PairGate


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small are only slowed down by sharing them out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def images() -> Tensor:
    return torch.randn(2, 3, 8, 8)


class Conv1D(nn.Module):
    """A linear layer with its weights the other way round."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], self.nf)


class NewGELUActivation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(x))


class Attention(nn.Module):
    """Everything a trace stumbles over: sizes, a branch on the data, heads, a mask, one function in block and child."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = Conv1D(48, 16), nn.Linear(16, 16), nn.LayerNorm(16)
        self.up, self.act, self.down = Conv1D(64, 16), NewGELUActivation(), Conv1D(16, 64)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, 4, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).split(width, dim=-1))
        scores = q @ k.transpose(-1, -2) / width**0.5
        if mask is not None and bool(mask.any()):
            scores = scores.masked_fill(mask[:, None, None, :], -1e4)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.act(self.up(x)))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(20, 16), nn.ModuleList(Attention() for _ in range(2))
        self.pool, self.head = nn.Linear(16, 16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, mask=mask)
        return {"logits": self.head(x), "pooled": torch.tanh(self.pool(x[:, 0]))}


def language() -> dict[str, Tensor]:
    return {"ids": torch.randint(0, 20, (2, 5)), "mask": torch.tensor([[False] * 5, [False] * 3 + [True] * 2])}


@pytest.mark.parametrize("spec", ["or_ail", "or_and_ail_d", "silu"])
@pytest.mark.parametrize("budget", ["width", "params"])
def test_a_language_model_runs_keeps_its_class_and_ties_and_loads_its_state(spec: str, budget: str) -> None:
    model, data = Language(), language()
    model.blocks[0].up.bias.requires_grad_(False)
    conversion = convert(model, spec, budget=budget, example=data)
    converted = conversion.model
    assert isinstance(converted, Language)
    assert converted.head.weight is converted.embedding.weight
    found = converted(**data)
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in model(**data).items()}
    sum(value.sum() for value in found.values()).backward()
    assert all(p.grad is not None for p in converted.parameters() if p.requires_grad)
    assert not converted.blocks[0].up.bias.requires_grad
    before, after = conversion.parameters
    assert budget == "width" or abs(after / before - 1) < 0.01
    assert {change.layer for change in conversion.changes} >= {"blocks.0.act", "blocks.1.act", "tanh"}
    again = convert(Language(), spec, budget=budget, example=data).model
    again.load_state_dict(converted.state_dict())
    for copied in (again, copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        torch.testing.assert_close(copied(**data), converted(**data), rtol=0, atol=0)


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


def test_activations_are_listed_with_widths_and_owners() -> None:
    found = activations(Language(), language())
    assert [tuple(each) for each in found] == [
        ("blocks.0.act", "NewGELUActivation()", 64, "blocks.0"),
        ("blocks.1.act", "NewGELUActivation()", 64, "blocks.1"),
        ("tanh", "tanh(…)", 16, ""),
    ]
    assert activations(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))[0][:3] == ("1", "ReLU()", 3)


def test_the_report_is_a_table_and_json() -> None:
    conversion = convert(Language(), "or_ail", example=language())
    lines = str(conversion).splitlines()
    assert lines[1].split() == ["block", "layer", "was", "now", "widths", "parameters", "weights"]
    assert len({line.index(word) for line, word in zip(lines[1:3], ("block", "blocks.0"), strict=True)}) == 1
    assert any(line.split() == ["blocks.0", "act", "NewGELUActivation()", "or_ail", "64", "→", "32"] for line in lines)
    plain = json.loads(json.dumps(conversion.to_dict()))
    assert plain["parameters"] == list(conversion.parameters)
    assert [change["layer"] for change in plain["changes"]] == [change.layer for change in conversion.changes]


class Gated(nn.Module):
    def __init__(self, act: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(6, 12), nn.Linear(6, 12), nn.Linear(12, 6)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        scaled = x * 2
        return self.down(self.act(self.gate(scaled)) * self.up(scaled)) * 1


@pytest.mark.parametrize("act", [F.silu, nn.SiLU(), NewGELUActivation()])
@pytest.mark.parametrize("traced", [False, True])
def test_a_gated_product_becomes_the_gate_of_its_factors(act: Callable[[Tensor], Tensor], traced: bool) -> None:
    model, x = Gated(act), torch.randn(3, 6)
    conversion = convert(model, "max", gated="replace", example=None if traced else x)
    assert conversion.parameters[0] == conversion.parameters[1]
    converted = conversion.model
    expected = converted.down(torch.maximum(converted.gate(2 * x), converted.up(2 * x)))
    torch.testing.assert_close(converted(x), expected)
    assert sum(isinstance(module, PairGate) for module in converted.modules()) == 1
    kept = convert(model, "max", example=x).model
    assert (kept.gate.out_features, kept.up.out_features) == (24, 12)
    both = convert(model, "max_min_d", gated="replace", budget="params", example=x)
    assert both.model.down.in_features == 2 * both.model.up.out_features
    assert convert(model, "relu", gated="replace", example=x).parameters == conversion.parameters


def test_a_product_with_no_layers_output_is_kept() -> None:
    class Masked(Gated):
        def forward(self, x: Tensor) -> Tensor:
            return self.down(self.act(self.gate(x)) * x.repeat(1, 2))

    converted = convert(Masked(), "or_and_ail_d", gated="replace", example=torch.randn(3, 6)).model
    assert converted(torch.randn(3, 6)).shape == (3, 6)
    assert not any(isinstance(module, PairGate) for module in converted.modules())


# Networks of ReLUs whose function a conversion keeps.


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
@pytest.mark.parametrize("spec", ["or_ail", "or_and_ail_d", "max", "or_ail_k3", "max_halves"])
@pytest.mark.parametrize("traced", [False, True])
def test_exact_weights_keep_the_function_and_learn(net: str, spec: str, traced: bool) -> None:
    model, x = make_trained(net), images()
    conversion = convert(model, spec, weights="exact", skip_pinned=True, example=None if traced else x)
    converted = conversion.model
    wanted = model(x)
    assert (converted(x) - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    assert {change.weights for change in conversion.changes} == {"", "exact"}
    converted.train()
    partners = {name: value.detach().clone() for name, value in converted.named_parameters()}
    optimiser = torch.optim.SGD(converted.parameters(), 0.02)
    losses = []
    for _ in range(6):
        optimiser.zero_grad()
        loss = converted(x).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    # Rows that were nothing but zeros, and norms that gave nothing, have begun to learn.
    for name, value in converted.named_parameters():
        rows = partners[name].flatten(1).abs().sum(1) == 0 if value.dim() > 1 else torch.zeros(0, dtype=torch.bool)
        assert not rows.any() or value[rows].abs().sum() > 0


@pytest.mark.parametrize(
    ("net", "left"),
    [("residual", ["3.relu_1", "4.relu_1"]), ("pre-activation", ["3.relu", "4.relu"]), ("mobile", []), ("dense", [])],
)
def test_exact_weights_leave_only_sums(net: str, left: list[str]) -> None:
    assert list(convert(make_trained(net), "or_ail", weights="exact", skip_pinned=True).left) == left


@pytest.mark.parametrize(
    ("model", "spec", "options", "words"),
    [
        (RELUS["mlp"], "or_nail", {}, r"at 2 .*or_nail of a channel and zeros is not ReLU\(\); .*use or_ail"),
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), "or_ail", {}, "at 1: .* is not GELU"),
        (RELUS["mlp"], "or_ail", {"budget": "params"}, "decides the widths"),
        (
            lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)),
            "or_ail",
            {},
            "at 2: 1 treats its channels in groups",
        ),
        (lambda: nn.Sequential(nn.Embedding(9, 4), nn.ReLU(), nn.Linear(4, 2)), "max", {}, "at 1: .*the embedding 0 fixes"),
    ],
)
def test_what_cannot_be_exact_is_refused(
    model: Callable[[], nn.Module], spec: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        convert(model(), spec, weights="exact", **options)


def test_kept_weights_are_the_first_rows_and_columns() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    small = convert(model, "or_ail", weights="keep")
    assert torch.equal(small.model[4].weight, model[4].weight[:, : 4 * 36])
    assert small.changes[-1].weights == "kept"
    large = convert(model, "or_ail", weights="keep", budget="params").model
    for name, value in model.state_dict().items():
        new = large.state_dict()[name]
        common = tuple(slice(min(a, b)) for a, b in zip(value.shape, new.shape, strict=True))
        assert torch.equal(new[common], value[common])


# What else there is in models: converted, or refused in one sentence.


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc1, self.act, self.fc2 = nn.LSTM(4, 12), nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x)
        return self.fc2(self.act(self.fc1(y[:, -1])))


class InADict(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.parts = kind({"a": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))})

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["a"](x)


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Renamed(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


class Called(nn.Module):
    """One function in two modules, one within the other, of which one is left; and a size that is written out."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.conv, self.inner, self.fc1, self.fc2 = nn.Conv2d(3, 8, 3), inner, nn.Linear(8 * 36, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(F.relu(self.conv(x)))
        return self.fc2(F.relu(self.fc1(x.reshape(x.shape[0], 8 * 36))))


class ReluInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


@pytest.mark.parametrize(
    ("model", "data", "widths"),
    [
        (Recurrent, lambda: torch.randn(2, 5, 4), {"fc1": 24, "fc2": 12}),
        (lambda: InADict(nn.ModuleDict), lambda: torch.randn(2, 4), {"parts.a.0": 8, "parts.a.2": 4}),
        (UNet, images, {"deep": 4, "up": 8, "last": 8, "out": 4}),
        (Dense, images, {"stem": 8, "convs.1": 6, "head": 8}),
        (lambda: nn.Sequential(Renamed(4, 8), nn.ReLU(), Renamed(8, 2)), lambda: torch.randn(2, 4), {"2": 4}),
        (lambda: nn.Sequential(Scaled(4, 8), nn.ReLU(), Scaled(8, 2)), lambda: torch.randn(2, 4), {"2": 4}),
        (
            lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 2)),
            lambda: torch.randn(2, 4),
            {"2": 4},
        ),
        (lambda: InADict(dict), lambda: torch.randn(2, 4), None),
        (lambda: Called(ReluInside()), images, {"fc1": 4 * 36, "fc2": 4}),
        (lambda: Called(nn.ReLU()), images, {"fc1": 4 * 36, "fc2": 4}),
    ],
)
def test_models_of_many_kinds(
    model: Callable[[], nn.Module], data: Callable[[], Tensor], widths: dict[str, int] | None
) -> None:
    given, x = model(), data()
    inside = [name for name in ("inner", "inner.relu") if name in {each.name for each in activations(given, x)}]
    if widths is None:
        with pytest.raises(ValueError, match=r"cannot put or_ail \(2→1\) at [^\n]*$"):
            convert(given, "or_ail", example=x)
        return
    converted = convert(given, "or_ail", example=x, keep=inside).model
    y = converted(x)
    assert y.shape == given(x).shape
    y.sum().backward()
    for name, width in widths.items():
        layer = converted.get_submodule(name)
        assert getattr(layer, "in_features", getattr(layer, "in_channels", None)) == width or name in (
            "fc1",
            "stem",
            "parts.a.0",
        )


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


def test_what_is_compiled_or_does_not_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the model is compiled: convert .*model\._orig_mod"):
        convert(torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), backend="eager"), "silu")
    with pytest.raises(ValueError, match=r"Language does not run on the example: .*keyword"):
        convert(Language(), "silu", example=torch.randn(2, 5))
    with pytest.raises(ValueError, match=r"torch\.fx cannot trace Language.*pass example="):
        convert(Language(), "or_ail")
    for wrong in ({"gated": "no"}, {"weights": "old"}):
        with pytest.raises(ValueError, match=f"unknown {next(iter(wrong))} '{next(iter(wrong.values()))}'; choose"):
            convert(Language(), "or_ail", **wrong)


def test_an_activation_inside_a_layer_of_the_users_own_is_seen() -> None:
    class Activated(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x))

    model, x = nn.Sequential(Activated(4, 8), nn.Linear(8, 2)), torch.randn(3, 4)
    for example in (None, x):
        converted = convert(model, "max", example=example).model
        hidden = F.linear(x, converted[0].weight, converted[0].bias).unflatten(-1, (4, 2)).amax(-1)
        torch.testing.assert_close(converted(x), converted[1](hidden))


def test_redirected_forwards_of_several_threads_do_not_disturb_each_other() -> None:
    model = convert(Called(ReluInside()), "or_ail", keep="inner.relu", example=images()).model.eval()
    batches = [images() for _ in range(4)]
    with torch.no_grad(), ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda x: [model(x) for _ in range(10)], batches)]
        for x, results in zip(batches, found, strict=True):
            assert all(torch.equal(result, model(x)) for result in results)


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
