"""The stand-in is a device: what meets the CPU is refused, and what it computes is what the CPU computes."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

HERE, ROWS = torch.arange(12.0).view(3, 4), torch.tensor([2, 0])
MIXED: dict[str, Callable[[Tensor], object]] = {
    "sum": lambda there: there + HERE,
    "product of matrices": lambda there: there @ HERE.T,
    "rows": lambda there: there.index_select(0, ROWS),
    "mask": lambda there: there.masked_fill(HERE > 3, 0),
    "gathered": lambda there: there.gather(0, ROWS.view(1, 2)),
    "joined": lambda there: torch.cat([there, HERE]),
    "chosen": lambda there: torch.where(HERE > 3, there, 0.0),
    "layer": lambda there: F.linear(there, HERE),
    "convolution": lambda there: F.conv2d(there.view(1, 1, 3, 4), HERE[:1, :1].view(1, 1, 1, 1)),
    "loss": lambda there: F.cross_entropy(there, torch.tensor([0, 1, 2])),
    "in place": lambda there: there.add_(HERE),
    "into": lambda there: torch.mul(there, 2, out=torch.empty(3, 4)),
}


@pytest.mark.parametrize("operation", MIXED)
def test_operands_of_two_devices_are_refused(operation: str, standin: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"standin.*cpu|cpu.*standin"):
        MIXED[operation](HERE.to(standin.NAME))


def test_a_number_in_a_tensor_may_be_the_cpu_s(standin: ModuleType) -> None:
    there = HERE.to(standin.NAME) * torch.tensor(2.0)
    assert there.device.type == standin.NAME
    assert torch.equal(there.cpu(), 2 * HERE)


def test_views_and_results_in_place_share_memory(standin: ModuleType) -> None:
    there = HERE.to(standin.NAME)
    there[1].zero_()
    there.T[0] = 7.0
    expected = HERE.clone()
    expected[1], expected[:, 0] = 0, 7
    assert torch.equal(there.cpu(), expected)
    there.data = there.view(4, 3)
    assert there.shape == (4, 3)


def test_gradients_are_the_cpu_s(standin: ModuleType) -> None:
    def gradient(device: str) -> Tensor:
        x = HERE.view(1, 1, 3, 4).to(device).requires_grad_()
        weight = torch.linspace(-1, 1, 8, device=device).view(2, 1, 2, 2)
        (F.layer_norm(F.conv2d(x, weight), (3,)).sigmoid() ** 2).sum().backward()
        assert x.grad is not None
        return x.grad.cpu()

    assert torch.equal(gradient(standin.NAME), gradient("cpu"))


def test_what_is_fetched_is_counted(standin: ModuleType) -> None:
    there = HERE.to(standin.NAME)
    float(there[0, 0])
    there.cpu()
    assert standin.transfers == {"from the CPU": 1, "read": 1, "to the CPU": 1}
