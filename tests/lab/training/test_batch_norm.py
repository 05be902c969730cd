"""Batch normalisation over several processes; with one it is torch's own."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from boolit.lab.training.distributed import SyncBatchNormMode, sync_batch_norm

SHAPES = [(8, 3), (4, 3, 5, 6), (1, 3, 7), (2, 3, 4, 4, 2)]


def both(shape: tuple[int, ...], dtype: torch.dtype, offset: float) -> list[list[Tensor]]:
    """Outputs, running statistics and gradients by torch and by us."""
    drawn = torch.Generator().manual_seed(1)
    x, above = (torch.randn(shape, generator=drawn, dtype=dtype) for _ in range(2))
    results = []
    for function in (F.batch_norm, sync_batch_norm):
        own = (x + offset).requires_grad_()
        weight, bias = (torch.linspace(0.5, 2, 3, dtype=dtype).requires_grad_() for _ in range(2))
        statistics = [torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)]
        out = function(own, *statistics, weight, bias, True, 0.2, 1e-4)
        results.append([out, *statistics, *torch.autograd.grad(out, [own, weight, bias], above)])
    return results


@pytest.mark.parametrize("shape", SHAPES)
@given(offset=st.floats(-100, 100))
def test_of_one_process_it_is_torchs(shape: tuple[int, ...], offset: float) -> None:
    for theirs, ours in zip(*both(shape, torch.float64, offset), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_in_float32_nothing_cancels() -> None:
    for theirs, ours in zip(*both((64, 3, 4, 4), torch.float32, 30.0), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_its_gradient_is_right() -> None:
    x, weight, bias = torch.randn(5, 2, 3).double(), torch.rand(2).double() + 0.5, torch.randn(2).double()
    inputs = [values.requires_grad_() for values in (x, weight, bias)]
    assert torch.autograd.gradcheck(lambda *own: sync_batch_norm(own[0], None, None, own[1], own[2], True), inputs)
    assert torch.autograd.gradcheck(lambda own: sync_batch_norm(own, None, None, training=True), inputs[:1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half(dtype: torch.dtype) -> None:
    x = torch.randn(8, 3, 4, 4).to(dtype).requires_grad_()
    out = sync_batch_norm(x, torch.zeros(3), torch.ones(3), torch.ones(3), torch.zeros(3), True)
    out.sum().backward()
    assert out.dtype == dtype
    assert x.grad is not None
    assert x.grad.dtype == dtype


def test_modules_use_it_within_the_mode_and_not_when_they_are_evaluated() -> None:
    layer, x = nn.BatchNorm1d(3), torch.randn(6, 3)
    with SyncBatchNormMode():
        trained = layer(x)
        layer.eval()
        evaluated = layer(x)
    assert "SyncNormalise" in type(trained.grad_fn).__name__
    assert "SyncNormalise" not in type(evaluated.grad_fn).__name__
    torch.testing.assert_close(evaluated, layer(x))
