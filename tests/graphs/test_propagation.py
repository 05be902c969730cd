"""Belief propagation: exact on trees, the same by kernel and by torch, and finite where other decoders are not."""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import exp, log, mp, mpf

from boolit.errors import UserError
from boolit.graphs import (
    BeliefPropagation,
    bivariate_bicycle_code,
    channel_logit,
    gallager_code,
    hamming_code,
    load_code,
    logical_operators,
    repetition_code,
    save_code,
    surface_code,
)

GROSS = bivariate_bicycle_code()[0]


def random_tree(draw: random.Random) -> list[list[int]]:
    """Return the variables of each check of a code without cycles."""
    checks, variables = [], 1
    while variables < 8:
        new = draw.randint(1, 3)
        checks.append([draw.randrange(variables), *range(variables, variables + new)])
        variables += new
    return checks


def exact_posterior(checks: list[list[int]], logits: list[float], parities: list[int]) -> list[tuple[mpf, mpf]]:
    """Return each posterior logit and its condition Σ|x ∂f/∂x|, by enumeration in 60 digits."""
    mp.dps = 60
    n = len(logits)
    factors = [exp(mpf(logit)) for logit in logits]
    together = [[[mpf(0)] * n for _ in range(2)] for _ in range(n)]  # [v][b][i]: weight of bit v = b and bit i = 0
    totals = [[mpf(0), mpf(0)] for _ in range(n)]
    for bits in itertools.product((0, 1), repeat=n):
        if all(sum(bits[v] for v in check) % 2 == parity for check, parity in zip(checks, parities, strict=True)):
            weight = math.prod((factor for factor, bit in zip(factors, bits, strict=True) if not bit), start=mpf(1))
            for v in range(n):
                totals[v][bits[v]] += weight
                for i in range(n):
                    together[v][bits[v]][i] += weight * (1 - bits[i])
    result = []
    for v in range(n):
        slopes = (together[v][0][i] / totals[v][0] - together[v][1][i] / totals[v][1] for i in range(n))
        condition = sum(abs(logit * slope) for logit, slope in zip(logits, slopes, strict=True))
        result.append((log(totals[v][0] / totals[v][1]), condition))
    return result


@pytest.mark.parametrize("schedule", ["flooding", "layered"])
def test_posteriors_on_trees_are_exact(schedule: str, way: str) -> None:
    """They err by at most 4u·c for each join and sum on the longest path through the tree."""
    draw = random.Random(f"{schedule} {way}")
    for _ in range(50):  # in each of four cases: 200 codes
        checks = random_tree(draw)
        n = max(map(max, checks)) + 1
        matrix = torch.zeros(len(checks), n)
        for row, check in enumerate(checks):
            matrix[row, check] = 1
        logits = [draw.gauss(0, 10 ** draw.uniform(-2, 1.5)) for _ in range(n)]
        parities = [draw.randint(0, 1) for _ in checks]
        depth = len(checks)  # no path crosses more checks
        decoder = BeliefPropagation(matrix, depth, schedule=schedule, early_stop=False)
        result = decoder(torch.tensor(logits, dtype=torch.float64), torch.tensor(parities)).logits
        joins = 2 * math.ceil(math.log2(max(map(len, checks)))) + int(matrix.sum(0).max()) + 1
        for value, (expected, condition) in zip(result.tolist(), exact_posterior(checks, logits, parities), strict=True):
            assert abs(value - expected) <= 4 * 2**-53 * condition * depth * joins


OPTIONS: list[dict[str, Any]] = [
    {},
    {"form": "ail", "scaling": 0.8, "offset": 0.1},
    {"damping": 0.2, "memory": 0.3},
    {"weights": "edge_iteration", "scaling": 0.9},
    {"early_stop": False, "memory": torch.linspace(-0.2, 0.4, 144)},
]


@pytest.mark.parametrize("schedule", ["flooding", "layered"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_kernel_and_torch_agree(
    options: dict[str, Any], dtype: torch.dtype, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    errors = (torch.rand(70, 144) < 0.06).long()
    syndrome = errors @ GROSS.T.long() % 2
    channel = torch.full((144,), channel_logit(0.06), dtype=dtype) + 0.1 * torch.rand(70, 144, dtype=dtype)
    decoder = BeliefPropagation(GROSS, 8, schedule=schedule, **options)
    with torch.no_grad():
        first = decoder(channel, syndrome)
        monkeypatch.setattr("boolit.graphs.gather.LIBRARY", None)
        second = decoder(channel, syndrome)
    for a, b in zip(first[1:], second[1:], strict=True):
        assert torch.equal(a, b)
    torch.testing.assert_close(first.logits, second.logits, rtol=1e-3 if dtype == torch.float32 else 1e-9, atol=1e-3)
    assert torch.equal(first.converged, (first.bits.long() @ GROSS.T.long() % 2 == syndrome).all(1))


@pytest.mark.usefixtures("way")
def test_a_shot_does_not_depend_on_its_batch() -> None:
    torch.manual_seed(0)
    channel = 2 * torch.randn(40, 144)
    decoder = BeliefPropagation(GROSS, 6)
    together = decoder(channel)
    for i in (0, 17, 39):
        for alone, whole in zip(decoder(channel[i]), together, strict=True):
            assert torch.equal(alone, whole[i])


@pytest.mark.usefixtures("way")
def test_gradients_of_weights_and_channel() -> None:
    torch.manual_seed(0)
    decoder = BeliefPropagation(hamming_code(3), 3, weights="edge_iteration", early_stop=False).double()
    channel = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)

    def posterior(channel: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(decoder, {"weights": weights}, (channel,)).logits

    assert torch.autograd.gradcheck(posterior, (channel, decoder.weights))
    assert torch.equal(decoder.trajectory(channel)[-1], decoder(channel).logits)


def test_learning_weights_lowers_the_loss() -> None:
    torch.manual_seed(0)
    decoder = BeliefPropagation(hamming_code(3), 3, weights="edge_iteration", scaling=1.5)
    optimizer = torch.optim.Adam(decoder.parameters(), 0.05)
    held_out = 2 + 2 * torch.randn(1000, 7)

    def loss(channel: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(-decoder.trajectory(channel)).mean()

    before = loss(held_out).item()
    for _ in range(30):
        optimizer.zero_grad()
        loss(2 + 2 * torch.randn(64, 7)).backward()
        optimizer.step()
    assert loss(held_out).item() < before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", ["il", "ail"])
def test_messages_stay_finite(form: str, dtype: torch.dtype, way: str) -> None:
    """ldpc gives NaN for errors that are unlikely at the assumed rate. Sums that double overflow float32 in 130 rounds."""
    torch.manual_seed(0)
    errors = torch.zeros(100, 144, dtype=torch.int64).scatter(1, torch.rand(100, 144).argsort(1)[:, :6], 1)
    for rate in (1e-1, 1e-3, 1e-6):
        channel = torch.full((144,), channel_logit(rate), dtype=dtype)
        decoder = BeliefPropagation(GROSS, 30 if way == "torch" else 300, form)
        assert decoder(channel, errors @ GROSS.T.long() % 2).logits.isfinite().all()


@pytest.mark.usefixtures("way")
def test_certain_bits_and_checks_of_one_bit() -> None:
    decoder = BeliefPropagation([[1, 0, 0], [1, 1, 0], [0, 1, 1]], 5)
    result = decoder(torch.tensor([-1.0, 2.0, math.inf]), torch.tensor([0, 1, 1]))
    assert result.bits.tolist() == [False, True, False]
    assert result.logits.tolist() == [math.inf, -math.inf, math.inf]


def test_inputs() -> None:
    decoder = BeliefPropagation(repetition_code(3), 5)
    assert decoder(torch.zeros(0, 3)).bits.shape == (0, 3)
    assert decoder(torch.ones(3), torch.zeros(4, 2)).bits.shape == (4, 3)
    for parities in ([1, 0], np.array([1, 0], np.uint8), torch.tensor([1, 0])):
        assert decoder(torch.ones(3), parities).bits.tolist() == [True, False, False]
    scipy = pytest.importorskip("scipy.sparse")
    channel = torch.tensor([1.0, -2.0, 0.5])
    for matrix in (repetition_code(3).numpy(), repetition_code(3).to_sparse(), scipy.csr_matrix(repetition_code(3).numpy())):
        assert torch.equal(BeliefPropagation(matrix, 5)(channel).logits, decoder(channel).logits)
    for channel_logits, syndrome in (
        (torch.ones(4), None),
        (torch.ones(3), torch.ones(3)),
        (torch.ones(2, 3), torch.ones(3, 2)),
    ):
        with pytest.raises(ValueError, match=r"shots|shape"):
            decoder(channel_logits, syndrome)
    for options in ({"form": "nil"}, {"schedule": "serial"}, {"weights": "all"}, {"damping": 1.0}, {"iterations": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            BeliefPropagation(repetition_code(3), **options)


def test_boolit_does_not_import_graphs() -> None:
    code = "import sys, boolit.nn; sys.exit('boolit.graphs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0


def test_codes() -> None:
    assert (hamming_code(4).shape, gallager_code(24).sum(0).unique().tolist()) == ((4, 15), [3])
    for (x_checks, z_checks), logical in ((bivariate_bicycle_code(), 12), (surface_code(5), 1), (surface_code(4), 1)):
        assert not (x_checks.long() @ z_checks.T.long() % 2).any()
        operators = logical_operators(z_checks, x_checks)
        assert len(operators) == logical
        assert not (operators.long() @ z_checks.T.long() % 2).any()
    assert surface_code(5)[0].shape == (12, 25)


@pytest.mark.parametrize("name", ["code.alist", "code.npz"])
def test_files(name: str, tmp_path: Path) -> None:
    matrix = gallager_code(24)
    matrix[0, :3] = 0  # an irregular one
    save_code(matrix, tmp_path / name)
    assert torch.equal(load_code(tmp_path / name).to_dense(), matrix)
    (tmp_path / name).write_text("3 x\n")
    with pytest.raises(UserError):
        load_code(tmp_path / name)
    with pytest.raises(UserError, match="alist"):
        load_code(tmp_path / "code.txt")
