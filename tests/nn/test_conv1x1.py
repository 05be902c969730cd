"""A 1×1 convolution with a stride is never handed to oneDNN as one, and what is done instead is the same convolution."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from boolit.lab.models import family
from boolit.lab.models.resnet18 import BasicBlock
from boolit.nn import Gate
from boolit.nn.conv1x1 import Conv1x1, make_safe
from boolit.nn.conversion import convert


class Convolutions(TorchDispatchMode):
    """Notes every convolution torch is asked for with a kernel of 1 and a stride, by its channels and stride."""

    def __init__(self) -> None:
        super().__init__()
        self.strided: list[tuple[list[int], list[int]]] = []
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.count += 1
            weight, stride = args[1], list(args[3])
            if set(weight.shape[2:]) == {1} and set(stride) != {1}:
                self.strided.append((list(weight.shape[:2]), stride))
        return func(*args, **(kwargs or {}))


def strided_kernels_of_1(model: nn.Module, x: Tensor) -> list[tuple[list[int], list[int]]]:
    with Convolutions() as noted:
        model(x).sum().backward()
    assert noted.count
    return noted.strided


@pytest.mark.parametrize("stride", [2, 3, (1, 2), (2, 1)])
@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_torch(stride: int | tuple[int, int], side: int, bias: bool) -> None:
    theirs = nn.Conv2d(2, 8, 1, stride, bias=bias).double()
    ours = copy.deepcopy(theirs)
    assert make_safe(ours)
    _compare(ours, theirs, torch.randn(4, 2, side, side + 1, dtype=torch.float64))


def _compare(ours: nn.Module, theirs: nn.Module, x: Tensor) -> None:
    """Sums of at most 4 · 8 · 9 terms of order 1, taken in another order: they part by at most 300² u = 1e-11."""
    inputs = [x.clone(memory_format=torch.channels_last).requires_grad_() for _ in range(2)]
    results = [layer(own) for layer, own in zip((ours, theirs), inputs, strict=True)]
    torch.testing.assert_close(*results, rtol=0, atol=1e-11)
    weights = torch.randn_like(results[0])
    found, expected = (
        torch.autograd.grad((result * weights).sum(), [own, *layer.parameters()])
        for layer, own, result in zip((ours, theirs), inputs, results, strict=True)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
    assert list(ours.state_dict()) == list(theirs.state_dict())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 8, 1),
        nn.Conv2d(8, 8, 1, 2),
        nn.Conv2d(2, 8, 3, 2),
        nn.Conv2d(2, 8, 1, 2, padding=1),
        nn.Conv2d(2, 8, 1, 2, groups=2),
        nn.Linear(2, 8),
    ],
    ids=str,
)
def test_what_is_no_such_convolution_is_left_alone(layer: nn.Module) -> None:
    kind = type(layer)
    assert not make_safe(layer)
    assert type(layer) is kind


class Residual(nn.Module):
    """A block of a ResNet, as a user has it."""

    def __init__(self, before: int, inside: int) -> None:
        super().__init__()
        self.relu, self.stem = nn.ReLU(), nn.Conv2d(3, before, 3, padding=1)
        self.conv, self.around = nn.Conv2d(before, inside, 3, 2, padding=1), nn.Conv2d(before, inside, 1, 2)
        self.linear = nn.Linear(inside, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        return self.linear(self.relu(self.conv(x) + self.around(x)).mean((2, 3)))


@pytest.mark.parametrize("before", [4, 12])  # it is there from the first, or comes of halving 12 channels
def test_converted_models_have_no_such_convolution(before: int) -> None:
    model, x = Residual(before, 16), torch.randn(2, 3, 8, 8)
    converted = convert(model, "or_ail")
    assert strided_kernels_of_1(model, x)
    assert strided_kernels_of_1(converted.model, x) == []
    assert any(str(change).startswith("around: Conv2d(") for change in converted.changes)
    assert "Conv1x1(" in str(converted)
    again = convert(converted.model, "relu", replace=[Gate])  # it is a layer like others: found, and given another width
    assert again.model.get_submodule("around").in_channels == before
    copied = pickle.loads(pickle.dumps(converted.model))
    torch.testing.assert_close(copied(x), converted.model(x), rtol=0, atol=0)


def test_unchanged_weights_are_kept() -> None:
    model = Residual(4, 16)
    converted = convert(model, "silu").model
    assert isinstance(converted.get_submodule("around"), Conv1x1)
    assert {name: value.tolist() for name, value in converted.state_dict().items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }


@pytest.mark.parametrize(
    ("options", "inputs", "outputs", "widths"),
    [
        ({"name": "preact-resnet", "depth": 18, "base": 4}, (3, 8, 8), 2, [4, 4, 4, 4]),
        ({"name": "preact-resnet", "depth": 50, "base": 4}, (3, 8, 8), 2, [4, 4, 4, 4]),
        ({"name": "cnn"}, (1, 8, 8), 2, [4] * 8),
    ],
    ids=["18", "50", "cnn"],
)
def test_no_family_of_models_has_one(options: dict[str, Any], inputs: tuple[int, ...], outputs: int, widths: list[int]) -> None:
    network = family(options).network(inputs, outputs, widths, "or_ail")
    assert strided_kernels_of_1(network, torch.randn(2, *inputs)) == []


def test_nor_have_the_encoders() -> None:
    assert strided_kernels_of_1(BasicBlock(4, 8), torch.randn(2, 4, 8, 8)) == []


STEPS = """
import torch
from boolit.lab.models import family
network = family({"name": "preact-resnet", "depth": 18, "base": 4}).network((3, 8, 8), 2, [4, 4, 4, 4], "or_ail")
for _ in range(30):
    torch.autograd.grad(network(torch.randn(16, 3, 8, 8)).sum(), list(network.parameters()))
    kept = [torch.randn(7 * i + 3) for i in range(40)]
print("done")
"""


def test_a_narrow_resnet_learns_without_avx_512() -> None:
    held = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", STEPS], env=os.environ | held, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
