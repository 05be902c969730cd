"""Measure `boolit.graphs.BeliefPropagation` next to ldpc, Sionna and plain torch.

    python benchmarks/decoding.py speed|finite|convergence|rates|learning|errors [--out FOLDER]

Each part writes a CSV. ldpc is needed (``pip install ldpc``); Sionna (``sionna-no-rt``) is measured if it is installed.
``speed`` sets the number of threads itself and takes about two minutes; for the other parts it is OMP_NUM_THREADS.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mpmath import atanh, mp, mpf, tanh
from torch import Tensor

from boolit.graphs import BeliefPropagation, IndexLists, channel_logit, gather_gate
from boolit.lab.decoding import CODES, RATES, Problem, learn_weights

Rows = list[dict[str, Any]]
BATCH = 256
GROSS = CODES["gross"]()


def plain_torch(H: Tensor, iterations: int) -> Callable[[Tensor, Tensor], Tensor]:  # noqa: N803
    """Return product-sum decoding as it is usually written in torch: tanh, a masked product, atanh with a clamp."""
    mask = H.bool()

    def decode(channel: Tensor, syndrome: Tensor) -> Tensor:
        messages = torch.zeros(len(syndrome), *mask.shape)
        sign = (1 - 2 * syndrome.float())[:, :, None]
        for _ in range(iterations):
            incoming = torch.where(mask, (channel + messages.sum(1))[:, None] - messages, torch.inf)
            tanh = torch.tanh(incoming / 2)
            tanh = torch.where(tanh.abs() < 1e-7, 1e-7, tanh)
            product = tanh.prod(2, keepdim=True) / tanh
            messages = torch.where(mask, 2 * torch.atanh((sign * product).clamp(-0.9999999, 0.9999999)), 0)
        return channel + messages.sum(1) <= 0

    return decode


def speed() -> Rows:
    """Time per shot, and per shot, edge and iteration, at batch 256 with one and with two threads.

    Decoders take turns, and the figures are medians of the rounds. Where other programs use the cores, the time of the
    processor is more reliable than that of the clock; it adds up over threads.
    """
    rows: Rows = []
    for rate, fixed in ((0.01, False), (0.03, False), (0.06, False), (0.06, True)):
        torch.manual_seed(0)
        decoders = timed_decoders(rate, fixed, GROSS.sample(BATCH, rate)[1])
        times: dict[tuple[str, int], list[tuple[float, float]]] = {}
        counts = {name: run() for name, run in decoders.items()}  # warm up
        for threads in (1, 2):  # ldpc has one in any case
            torch.set_num_threads(threads)
            for _ in range(10 if fixed else 60):
                for name, run in decoders.items():
                    start, cpu = time.perf_counter(), time.process_time()
                    run()
                    measured = time.perf_counter() - start, time.process_time() - cpu
                    times.setdefault((name, threads), []).append(measured)
        for (name, threads), seconds in times.items():
            (wall, cpu), unit = zip(*seconds, strict=True), 1e9 / counts[name] / int(GROSS.checks.sum())
            figures = {"iterations": counts[name] / BATCH, "us_per_shot": statistics.median(wall) / BATCH * 1e6}
            figures |= {"ns": statistics.median(wall) * unit, "fastest_ns": min(wall) * unit}
            figures |= {"cpu_ns": statistics.median(cpu) * unit}
            row = {"rate": rate, "stop": "20 iterations" if fixed else "convergence", "decoder": name, "threads": threads}
            rows.append(row | {key: round(value, 3) for key, value in figures.items()})
            print(*rows[-1].values())
    return rows


def timed_decoders(rate: float, fixed: bool, syndrome: Tensor) -> dict[str, Callable[[], float]]:
    """Return functions that decode the batch and return the iterations of all shots."""
    from ldpc import BpDecoder

    iterations, channel = 20 if fixed else 50, torch.full((144,), channel_logit(rate))
    numbers = syndrome.to(torch.uint8).numpy()
    decoders: dict[str, Callable[[], float]] = {}

    def run_ldpc(decoder: Any) -> float:
        total = 0
        for row in numbers:
            decoder.decode(row)
            total += decoder.iter
        return total

    for name, method, form in (("product-sum", "product_sum", "il"), ("min-sum", "minimum_sum", "ail")):
        if not fixed:
            other = BpDecoder(GROSS.checks.numpy(), error_rate=rate, max_iter=iterations, bp_method=method)
            decoders[f"ldpc {name}"] = partial(run_ldpc, other)
        ours = BeliefPropagation(GROSS.checks, iterations, form, early_stop=not fixed)
        for prior in (channel, channel.double()):
            label = f"boolit {name} {str(prior.dtype).removeprefix('torch.')}"
            decoders[label] = lambda ours=ours, prior=prior: float(ours(prior, syndrome).iterations.sum())
    if fixed:  # these do not stop early
        usual = plain_torch(GROSS.checks, iterations)
        decoders["plain torch product-sum"] = lambda: float(len(usual(channel, syndrome)) * iterations)
        decoders |= sionna_decoders(iterations, channel.expand(BATCH, -1))
    return decoders


def sionna_decoders(iterations: int, channel: Tensor) -> dict[str, Callable[[], float]]:
    try:
        from sionna.phy.fec.ldpc import LDPCBPDecoder
    except ImportError as error:
        print("Sionna is not measured:", error)
        return {}
    decoders = {}
    for name, update in (("boxplus", "boxplus"), ("boxplus-phi", "boxplus-phi"), ("min-sum", "minsum")):
        decoder = LDPCBPDecoder(GROSS.checks.numpy(), cn_update=update, num_iter=iterations, hard_out=False, device="cpu")
        decoders[f"Sionna {name}"] = lambda decoder=decoder: float(len(decoder(-channel)) * iterations)  # its logits are of 1
    return decoders


def finite() -> Rows:
    """Decode a million shots of weights 1 to 12 and count results that are not finite."""
    from ldpc import BpDecoder

    torch.manual_seed(0)
    rows: Rows = []
    rates = [10.0**-k for k in range(1, 7)]
    for dtype in (torch.float32, torch.float64):
        for form in ("il", "ail"):
            bad = converged = total = 0
            decoder = BeliefPropagation(GROSS.checks, 50, form)
            for rate in rates:
                for weight in range(1, 13):
                    shots = math.ceil(250_000 / (len(rates) * 12))
                    flipped = torch.rand(shots, 144).argsort(1)[:, :weight]
                    errors = torch.zeros(shots, 144).scatter(1, flipped, 1)
                    result = decoder(torch.full((144,), channel_logit(rate), dtype=dtype), GROSS.syndrome(errors))
                    bad += int((~result.logits.isfinite()).any(1).sum())
                    converged += int(result.converged.sum())
                    total += shots
            rows.append({"decoder": f"boolit {form} {dtype}", "shots": total, "not_finite": bad, "converged": converged})
            print(*rows[-1].values())
    # ldpc on the case of its issue 103: weight 6 at error rate 1e-3
    errors = torch.zeros(5000, 144).scatter(1, torch.rand(5000, 144).argsort(1)[:, :6], 1)
    syndrome = GROSS.syndrome(errors)
    other = BpDecoder(GROSS.checks.numpy(), error_rate=1e-3, max_iter=50, bp_method="product_sum")
    failing = []
    for i, row in enumerate(syndrome.to(torch.uint8).numpy()):
        other.decode(row)
        if not all(map(math.isfinite, other.log_prob_ratios)):
            failing.append(i)
    for dtype in (torch.float32, torch.float64):
        ours = BeliefPropagation(GROSS.checks, 50)(torch.full((144,), channel_logit(1e-3), dtype=dtype), syndrome[failing])
        bad, converged = int((~ours.logits.isfinite()).any(1).sum()), int(ours.converged.sum())
        label = f"boolit il {dtype} where ldpc fails"
        rows.append({"decoder": label, "shots": len(failing), "not_finite": bad, "converged": converged})
    rows.append({"decoder": "ldpc product_sum, weight 6 at 1e-3", "shots": 5000, "not_finite": len(failing), "converged": ""})
    for row in rows[-3:]:
        print(*row.values())
    return rows


def compared(problem: Problem, rate: float, shots: int, method: str) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield the index, ldpc's bits (None if it did not converge), our result, and the errors."""
    from ldpc import BpDecoder

    torch.manual_seed(int(1e6 * rate))
    errors, syndrome = problem.sample(shots, rate)
    form = "il" if method == "product_sum" else "ail"
    channel = torch.full((errors.shape[1],), channel_logit(rate), dtype=torch.float64)
    ours = BeliefPropagation(problem.checks, 50, form)(channel, syndrome)
    other = BpDecoder(problem.checks.numpy(), error_rate=rate, max_iter=50, bp_method=method, input_vector_type="syndrome")
    for i, row in enumerate(syndrome.to(torch.uint8).numpy()):
        bits = torch.from_numpy(other.decode(row).copy()).bool()
        yield i, (bits, bool(other.converge)), ours, errors


def convergence() -> Rows:
    """Count where ldpc converges and we do not, and where both do but decide differently.

    These shots are decoded again in 60 digits: ``boolit_right`` and ``ldpc_right`` count who ends like that.
    """
    rows: Rows = []
    for method in ("product_sum", "minimum_sum"):
        for rate in (0.01, 0.03, 0.05):
            row: dict[str, Any] = {"method": method, "rate": rate, "shots": 5000}
            row |= dict.fromkeys(("both", "only_ldpc", "only_boolit", "different", "boolit_right", "ldpc_right"), 0)
            for i, (bits, converged), ours, errors in compared(GROSS, rate, 5000, method):
                mine = bool(ours.converged[i])
                equal = torch.equal(bits, ours.bits[i])
                row["both"] += converged and mine
                row["only_ldpc"] += converged and not mine
                row["only_boolit"] += mine and not converged
                row["different"] += converged and mine and not equal
                if method == "product_sum" and (converged != mine or (converged and not equal)):
                    exact, satisfied = decode_in_60_digits(GROSS.syndrome(errors[i : i + 1])[0].tolist(), rate)
                    row["boolit_right"] += satisfied == mine and (not mine or exact == ours.bits[i].tolist())
                    row["ldpc_right"] += satisfied == converged and (not converged or exact == bits.tolist())
            rows.append(row)
            print(*row.values())
    return rows


def decode_in_60_digits(syndrome: list[bool], rate: float) -> tuple[list[bool], bool]:
    """Return the decisions of product-sum after at most 50 iterations, and whether they satisfy the syndrome."""
    mp.dps = 60
    checks = [row.nonzero()[:, 0].tolist() for row in GROSS.checks]
    prior = mpf(channel_logit(rate))
    messages = {(c, v): mpf(0) for c, check in enumerate(checks) for v in check}
    totals = [prior] * 144
    for _ in range(50):
        ratios = {edge: tanh((totals[edge[1]] - message) / 2) for edge, message in messages.items()}
        for c, check in enumerate(checks):
            for v in check:
                messages[c, v] = (-2 if syndrome[c] else 2) * atanh(math.prod(ratios[c, w] for w in check if w != v))
        totals = [prior] * 144
        for (_, v), message in messages.items():
            totals[v] += message
        bits = [total <= 0 for total in totals]
        if all(sum(bits[v] for v in check) % 2 == parity for check, parity in zip(checks, syndrome, strict=True)):
            return bits, True
    return bits, False


def rates() -> Rows:
    """Frame-error rates of product-sum next to ldpc's on three codes and three noise levels, on the same shots."""
    rows: Rows = []
    for code, levels in RATES.items():
        problem, shots = CODES[code](), 10000
        for rate in levels:
            theirs, mine = torch.zeros(shots, dtype=torch.bool), torch.zeros(shots, dtype=torch.bool)
            for i, (bits, converged), ours, errors in compared(problem, rate, shots, "product_sum"):
                theirs[i] = not converged or bool(problem.failed(bits[None], errors[i : i + 1]))
                mine[i] = bool(problem.failed(ours.bits[i : i + 1], errors[i : i + 1]))
            only_ldpc, only_boolit = int((theirs & ~mine).sum()), int((mine & ~theirs).sum())
            error = math.sqrt(shots * mine.double().var().item())
            row = {"code": code, "rate": rate, "shots": shots, "ldpc": int(theirs.sum()), "boolit": int(mine.sum())}
            rows.append(row | {"only_ldpc": only_ldpc, "only_boolit": only_boolit, "standard_error": round(error, 1)})
            print(*rows[-1].values())
    return rows


def learning() -> Rows:
    """Learn weights on the gross code, and compare frames of the same shots with plain BP."""
    start, cpu = time.perf_counter(), time.process_time()
    torch.manual_seed(0)
    learned = learn_weights(GROSS, 0.05, iterations=10, steps=2000)
    spent, cpu = time.perf_counter() - start, time.process_time() - cpu
    rows: Rows = []
    for rate in (0.03, 0.04, 0.05, 0.06):
        torch.manual_seed(1)
        errors, syndrome = GROSS.sample(50000, rate)
        channel = torch.full((144,), channel_logit(rate))
        with torch.no_grad():
            plain, better = (
                GROSS.failed(decoder(channel, syndrome).bits, errors)
                for decoder in (BeliefPropagation(GROSS.checks, 10), learned)
            )
        lost, won = int((better & ~plain).sum()), int((plain & ~better).sum())  # McNemar's test
        z = (won - lost) / math.sqrt(max(won + lost, 1))
        figures = {"plain": int(plain.sum()), "learned": int(better.sum()), "z": round(z, 1)}
        rows.append(
            {"rate": rate, "shots": 50000, "iterations": 10, **figures, "seconds": round(spent), "cpu_seconds": round(cpu)}
        )
        print(*rows[-1].values())
    return rows


def errors() -> Rows:
    """Worst errors of leave-one-out gates of float32 in units of u·c, against float64."""
    rows: Rows = []
    for spec in ("xnor_il", "or_il"):
        for k in (3, 4, 6, 8, 16, 32, 64):
            worst = 0.0
            lists = IndexLists(torch.tensor([0, k]), torch.arange(k))
            for seed in range(20):
                torch.manual_seed(seed)
                scale = 10 ** torch.empty(4000, 1).uniform_(-2, 2)
                x = torch.randn(4000, k) * scale
                exact = x.double().requires_grad_()
                reference = gather_gate(exact, lists, spec, leave_one_out=True)[:, 0]
                (slopes,) = torch.autograd.grad(reference.sum(), exact)
                condition = torch.maximum((x * slopes).abs().sum(1), reference.detach().abs())
                error = (gather_gate(x, lists, spec, leave_one_out=True)[:, 0] - reference.detach()).abs()
                normal = condition > 1e-30  # below, results are subnormal numbers
                worst = max(worst, float((error / condition)[normal].max()) / 2**-24)
            joins, depth = 2 * math.ceil(math.log2(k)) - 2, math.ceil(math.log2(k))
            rows.append({"gate": spec, "k": k, "worst_uc": round(worst, 2), "4_per_level": 4 * depth, "4_per_join": 4 * joins})
            print(*rows[-1].values())
    return rows


PARTS = {part.__name__: part for part in (speed, finite, convergence, rates, learning, errors)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path("docs/evidence/decoding"))
    arguments = parser.parse_args()
    table = PARTS[arguments.part]()
    with (arguments.out / f"{arguments.part}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
