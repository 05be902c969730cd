"""The kernels of training are within derived bounds of the formulas, and compute every run by itself.

Bounds are sums of the errors of single operations, each at most u relative to its result, to first order and rounded up; they
are computed in float64 from the numbers at hand, and hold twice where what they are compared with is rounded as coarsely.
The same bounds hold for the formulas.
"""

from __future__ import annotations

import platform
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.logic.kernels import KernelStatus, training
from boolit.logic.kernels.training import ONE_PIXEL, Update, batch_norm, binary_hits, gather_bytes, gather_rows, hits, look_up

DTYPES = [torch.float32, torch.float64]
RULES = ["sgd", "adam", "adamw"]
NUMBERS = torch.tensor(  # weight decay, momentum or 1 − beta1, 1 − beta2, beta2, eps
    [[0.0, 0.1, 0.001, 0.999, 1e-8], [0.1, 1.0, 0.05, 0.95, 1e-3], [0.01, 0.6, 0.5, 0.5, 1e-6]], dtype=torch.float64
)
NOW = torch.tensor([[-0.01, 1.5, 0.0], [-0.3, 1.0, 0.03], [0.0, 9.0, 0.0]], dtype=torch.float64)  # the last run stands still
SIZES = [(5, 7), (1,), (4099,), (9000,)]  # of parameters: shorter than a vector, a block and a tail, blocks and a tail
RUNS, COLUMNS = 3, sum(torch.Size(size).numel() for size in SIZES)


@pytest.fixture(autouse=True)
def _threads_stay() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["kernel", "formula"])
def _each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "formula":
        monkeypatch.setattr(training, "LIBRARY", None)


def unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


def state(dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Values and moments, gradients by parameter, factors of the columns."""
    drawn = torch.Generator().manual_seed(3)
    values, mean = (torch.randn(RUNS, COLUMNS, generator=drawn, dtype=dtype) for _ in range(2))
    square = torch.rand(RUNS, COLUMNS, generator=drawn, dtype=dtype)
    gradients = [torch.randn(RUNS, *size, generator=drawn, dtype=dtype) for size in SIZES]
    return [values, mean, square], gradients, torch.rand(COLUMNS, generator=drawn, dtype=dtype) * 3


def stepped(
    rule: str, own: list[Tensor], gradients: list[Tensor], factors: Tensor | None, rows: slice = slice(None)
) -> list[Tensor]:
    values, mean, square = (tensor[rows].clone() for tensor in own)
    moments = [mean] if rule == "sgd" else [mean, square]
    numbers, now = (tensor[rows].to(values.dtype) for tensor in (NUMBERS, NOW))
    Update(rule, values, moments, numbers, factors).step([gradient[rows].clone() for gradient in gradients], now)
    return [values, *moments]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_is_the_formulas_within_its_rounding(rule: str, dtype: torch.dtype, scaled: bool) -> None:
    own, gradients, factors = state(dtype)
    found = stepped(rule, own, gradients, factors if scaled else None)
    values, mean, square = (tensor.double() for tensor in own)
    decay, first, second, beta2, eps = NUMBERS.to(dtype).double().unsqueeze(2).unbind(1)
    minus, root, shrinkage = NOW.to(dtype).double().unsqueeze(2).unbind(1)
    rates = minus * factors.double() if scaled else minus
    slope, u = torch.cat([gradient.flatten(1) for gradient in gradients], 1).double(), unit(dtype)
    if rule == "adamw":
        values = values * (1 - shrinkage * (factors.double() if scaled else 1))
        size = slope.abs()
    else:
        size = slope.abs() + (decay * values).abs()  # the gradient is within 2u of this
        slope = slope + decay * values
    if rule == "sgd":
        moment = first * mean + slope
        moment_error = 4 * u * ((first * mean).abs() + size)
        change, change_error, squares, squares_error = moment, moment_error, [], []
    else:
        moment, squared = mean + first * (slope - mean), beta2 * square + second * slope**2
        moment_error = 6 * u * (size + mean.abs())
        squared_error = 8 * u * (beta2 * square + second * size**2)
        below = squared.sqrt() * root + eps
        below_error = root * squared_error / squared.sqrt() + 3 * u * below
        change = moment / below
        change_error = moment_error / below + change.abs() * (below_error / below + 2 * u)
        squares, squares_error = [squared], [squared_error]
    exact = [values + rates * change, moment, *squares]
    value_error = rates.abs() * change_error + 5 * u * (values.abs() + (rates * change).abs())
    for ours, theirs, error in zip(found, exact, [value_error, moment_error, *squares_error], strict=True):
        assert bool(((ours.double() - theirs).abs() <= 2 * error).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", RULES)
def test_a_runs_step_depends_neither_on_other_runs_nor_on_threads_nor_on_parts(rule: str, dtype: torch.dtype) -> None:
    own, gradients, factors = state(dtype)
    torch.set_num_threads(2)
    together = stepped(rule, own, gradients, factors)
    torch.set_num_threads(1)
    whole = [torch.cat([gradient.flatten(1) for gradient in gradients], 1)]
    for run in range(RUNS):
        rows = slice(run, run + 1)
        for ours, theirs, joined in zip(
            together, stepped(rule, own, gradients, factors, rows), stepped(rule, own, whole, factors, rows), strict=True
        ):
            assert torch.equal(ours[rows], theirs)
            assert torch.equal(ours[rows], joined)


def test_types_that_kernels_do_not_know_take_the_formula() -> None:
    own, gradients, _ = state(torch.float64)
    half = [tensor.bfloat16() for tensor in own]
    found = stepped("adam", half, [gradient.bfloat16() for gradient in gradients], None)
    for ours, theirs in zip(found, stepped("adam", own, gradients, None), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=0.1, atol=0.1)


def norm_inputs(samples: int, dtype: torch.dtype, offset: float) -> tuple[list[Tensor], Tensor]:
    """x, the running mean and variance, weight and bias; and the gradient above."""
    drawn = torch.Generator().manual_seed(5)
    x, above = (torch.randn(3, 7, samples, generator=drawn, dtype=torch.float64) for _ in range(2))
    parameters = [torch.randn(3, 7, generator=drawn, dtype=torch.float64) for _ in range(4)]
    return [own.to(dtype) for own in (x + offset, parameters[0], parameters[1].square(), *parameters[2:])], above.to(dtype)


def normalised(inputs: list[Tensor], above: Tensor, momentum: float = 0.1, eps: float = 1e-3) -> list[Tensor]:
    """The output, the running statistics, and the gradients of x, weight and bias."""
    own = [tensor.clone().requires_grad_(place not in (1, 2)) for place, tensor in enumerate(inputs)]
    out = batch_norm(*own, momentum, eps)
    return [out.detach(), own[1], own[2], *torch.autograd.grad(out, [own[0], own[3], own[4]], above)]


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0.0, -40.0])
@pytest.mark.parametrize("samples", [2, 37, 100, 2500])
def test_batch_norm_is_the_formulas_within_its_rounding(samples: int, offset: float, dtype: torch.dtype) -> None:
    inputs, above = norm_inputs(samples, dtype, offset)
    found = [own.double() for own in normalised(inputs, above)]
    x, running_mean, running_var, weight, bias = (own.double() for own in inputs)
    g, u, eps, momentum = above.double(), unit(dtype), 1e-3, 0.1
    many = (min(samples, 1024) / 4 + 16) * u  # a sum of so many terms in at least four lanes, relative to that of their sizes
    mean, apart = x.mean(2, keepdim=True), x - x.mean(2, keepdim=True)
    var = apart.square().mean(2, keepdim=True)
    scale = (var + eps).rsqrt()
    off = many * x.abs().mean(2, keepdim=True) + 2 * u * x.abs()  # how far x − mean is off
    worst = off.amax(2, keepdim=True)
    var_error = 2 * var.sqrt() * worst + worst.square() + many * var
    relative = var_error / (var + eps) + 3 * u  # of the scale
    w, b = weight.unsqueeze(2), bias.unsqueeze(2)
    out = apart * scale * w + b
    out_error = (scale * w).abs() * (off + apart.abs() * (relative + 4 * u)) + 2 * u * (out.abs() + b.abs())
    unbiased = samples / (samples - 1)
    mean_error = momentum * worst.squeeze(2) + 4 * u * (mean.squeeze(2).abs() + running_mean.abs())
    moved_error = momentum * unbiased * var_error.squeeze(2) + 4 * u * (var.squeeze(2) * unbiased + running_var)
    product, size = (g * apart).mean(2, keepdim=True), (g * apart).abs().mean(2, keepdim=True)
    sizes = g.abs().mean(2, keepdim=True)
    product_error = sizes * worst + many * size
    share = product * scale.square()
    share_error = product_error * scale.square() + share.abs() * (2 * relative + 4 * u)
    inner = g - g.mean(2, keepdim=True) - apart * share
    inner_error = (
        many * sizes + off * share.abs() + apart.abs() * share_error + 4 * u * (g.abs() + sizes + (apart * share).abs())
    )
    factor = (scale * w).abs()
    exact = {
        "out": (out, out_error),
        "running mean": (momentum * mean.squeeze(2) + (1 - momentum) * running_mean, mean_error),
        "running variance": (momentum * unbiased * var.squeeze(2) + (1 - momentum) * running_var, moved_error),
        "of x": (inner * scale * w, factor * (inner_error + inner.abs() * (relative + 4 * u))),
        "of weight": (
            (samples * product * scale).squeeze(2),
            (samples * (product_error * scale + (product * scale).abs() * (relative + 4 * u))).squeeze(2),
        ),
        "of bias": (g.sum(2), (samples * many * sizes).squeeze(2)),
    }
    for ours, (name, (theirs, error)) in zip(found, exact.items(), strict=True):
        assert bool(((ours - theirs).abs() <= 2 * error).all()), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_runs_batch_norm_depends_neither_on_other_runs_nor_on_threads(dtype: torch.dtype) -> None:
    inputs, above = norm_inputs(5001, dtype, 1.0)
    torch.set_num_threads(2)
    together = normalised(inputs, above)
    torch.set_num_threads(1)
    for run in range(3):
        alone = normalised([own[run : run + 1] for own in inputs], above[run : run + 1])
        for ours, theirs in zip(together, alone, strict=True):
            assert torch.equal(ours[run : run + 1], theirs)


def test_batch_norm_has_the_right_gradient_of_tensors_however_they_lie() -> None:
    inputs, _ = norm_inputs(6, torch.float64, 0.5)
    x, mean, var, weight, bias = inputs
    x, weight = x.mT.contiguous().mT, torch.cat([bias, weight], 1)[:, 7:]  # as the columns of a matrix of all parameters

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return batch_norm(x, mean.clone(), var.clone(), weight, bias, 0.1, 1e-3).mT

    assert torch.autograd.gradcheck(function, [own.requires_grad_() for own in (x, weight, bias)])


def test_relu_after_batch_norm_is_torchs() -> None:
    inputs, above = norm_inputs(37, torch.float64, 0.5)
    inputs[0][0, 0, 3] = torch.nan
    results = []
    for fused in (False, True):
        own = [tensor.clone().requires_grad_(place not in (1, 2)) for place, tensor in enumerate(inputs)]
        out = batch_norm(*own, 0.1, 1e-3, fused)
        out = out if fused else out.relu()
        results.append([out.detach(), *own[1:3], *torch.autograd.grad(out, [own[0], own[3], own[4]], above)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert bool((results[0][0] == 0).any())


@pytest.mark.skipif(training.LIBRARY is None, reason="the formula can be differentiated twice")
def test_the_kernels_gradient_refuses_to_be_differentiated() -> None:
    inputs, above = norm_inputs(6, torch.float64, 0.0)
    x = inputs[0].requires_grad_()
    out = batch_norm(x, *inputs[1:], 0.1, 1e-3)
    (gradient,) = torch.autograd.grad(out, x, above.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_one_sample_has_no_variance() -> None:
    inputs, _ = norm_inputs(1, torch.float32, 0.0)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        batch_norm(*inputs, 0.1, 1e-3)


def test_mixed_types_take_the_formula() -> None:
    inputs, _ = norm_inputs(50, torch.float32, 0.0)
    x = inputs[0].bfloat16()
    statistics = [own.clone() for own in inputs[1:3]]
    flat = [own.flatten() for own in (*statistics, *inputs[3:])]
    theirs = F.batch_norm(x.view(1, 21, 50), *flat, True, 0.1, 1e-3).view_as(x)
    assert torch.equal(batch_norm(x, *inputs[1:], 0.1, 1e-3), theirs)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize(("samples", "features"), [(1, 1), (16, 4), (37, 54)])
def test_gathered_rows_are_the_stored_ones_with_the_samples_last(samples: int, features: int, dtype: torch.dtype) -> None:
    stored, rows = torch.randn(50, features).to(dtype), torch.randint(50, (3, samples))
    found = gather_rows(stored, rows)
    assert torch.equal(found, stored[rows])
    assert found.mT.is_contiguous()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (28, 28), (3, 7)])
def test_gathered_bytes_are_the_tables_entries(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    stored, table = torch.randint(256, (40, *shape), dtype=torch.uint8), torch.randn(256).to(dtype)
    rows = torch.randint(40, (3, 50))
    assert torch.equal(gather_bytes(stored, rows, table), table[stored[rows].int()])


@pytest.mark.parametrize("row", [-1, 5])
def test_a_row_that_is_not_stored_is_refused(row: int) -> None:
    with pytest.raises(IndexError):
        gather_rows(torch.zeros(5, 2), torch.tensor([[0, row]]))


@pytest.mark.usefixtures("_each_way")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, *DTYPES])
def test_pixels_are_looked_up_at_the_floor_of_their_origin(dtype: torch.dtype) -> None:
    """Origins of quarters of a pixel, so that many are whole: Python's integers say which pixel is meant."""
    drawn = torch.Generator().manual_seed(2)
    height, width = 5, 7
    images = torch.randint(1, 200, (width, height, 6), generator=drawn).to(dtype).permute(2, 1, 0)  # not as they lie in memory
    quarters = torch.randint(-9, 10, (6, 2, 3), generator=drawn)
    found = look_up(images, quarters * (ONE_PIXEL // 4))
    inside = 0
    for image, new, (across, down) in zip(images, found, quarters.tolist(), strict=True):
        for y in range(height):
            for x in range(width):
                left, top = ((a * x + b * y + c) // 4 for a, b, c in (across, down))
                here = 0 <= left < width and 0 <= top < height
                inside += here
                assert new[y, x] == (image[top, left] if here else 0)
    assert 20 < inside < 190
    assert found.dtype == dtype


def test_images_of_any_number_are_looked_up_alike_by_any_threads() -> None:
    images = torch.randint(256, (50, 28, 28), dtype=torch.uint8)
    origins = (torch.eye(2, 3, dtype=torch.float64) + 0.3 * torch.randn(50, 2, 3, dtype=torch.float64)).mul(ONE_PIXEL).long()
    torch.set_num_threads(1)
    alone = [look_up(images[i : i + 1], origins[i : i + 1]) for i in range(50)]
    torch.set_num_threads(2)
    assert torch.equal(look_up(images, origins), torch.cat(alone))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize(("classes", "samples"), [(1, 3), (2, 16), (7, 100)])
def test_hits_are_where_torch_finds_the_largest(classes: int, samples: int, dtype: torch.dtype) -> None:
    outputs = torch.randint(4, (3, classes, samples)).to(dtype)  # many ties
    outputs[1, :, 0], outputs[2, -1, 1], outputs[0, 0, 2] = torch.nan, torch.nan, torch.inf
    largest = outputs.max(1).indices
    targets = torch.where(torch.rand(3, samples) < 0.5, largest, torch.randint(classes, (3, samples)))
    assert torch.equal(hits(outputs, targets), largest == targets)
    assert torch.equal(hits(outputs, targets[1].expand(3, -1)), largest == targets[1])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 2])
def test_binary_hits_are_on_the_targets_side(width: int, dtype: torch.dtype) -> None:
    outputs = torch.tensor([-1.0, 0.0, 1e-30, torch.nan, torch.inf, -0.0, 3.0]).repeat(3, width, 2).to(dtype).mT
    targets = torch.randint(2, outputs.shape).to(dtype)
    assert torch.equal(binary_hits(outputs, targets), (outputs > 0) == (targets > 0.5))
    shared = targets[0].expand_as(outputs)
    assert torch.equal(binary_hits(outputs, shared), (outputs > 0) == (shared > 0.5))


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> KernelStatus:
    """What is found in a folder that has the kernels, if it has them."""
    monkeypatch.setattr(training, "__file__", str(folder / "training.py"))
    monkeypatch.setenv("BOOLIT_KERNELS", "1")
    library, verdict = training._load()
    assert (library is not None) == verdict.active
    return verdict


@pytest.mark.skipif(training.STATUS.path is None, reason="there are no kernels")
@pytest.mark.parametrize("level", ["baseline", "x86-64-v3"])
def test_the_level_wished_for_is_loaded(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_INSTRUCTIONS", level)
    shutil.copy(str(training.STATUS.path), tmp_path)  # a library reads its level when it is loaded
    expected = level if platform.machine() == "x86_64" else "baseline"
    assert loaded(tmp_path, monkeypatch).instructions == expected


def test_missing_and_broken_kernels_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(tmp_path, monkeypatch).reason.startswith("not built")
    (tmp_path / f"_training{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"no library")
    assert "does not load" in loaded(tmp_path, monkeypatch).reason
    monkeypatch.setenv("BOOLIT_KERNELS", "0")
    assert training._load() == (None, KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them"))
