"""A 1×1 convolution with a stride is never handed to oneDNN as one, and what is done instead is the same convolution."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from boolit.lab.models import family
from boolit.lab.models.resnet18 import BasicBlock
from boolit.nn.conv1x1 import Conv1x1


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
    ours = Conv1x1(2, 8, stride, bias).double()  # type: ignore[arg-type]
    ours.load_state_dict(theirs.state_dict())
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
