"""The worst errors of the exact gates on millions of adversarial points, by kernel and by formula.

``python benchmarks/accuracy.py`` compiles a long double reference (accuracy_reference.cpp, checked against mpmath), tries
every instruction set of this machine, writes benchmarks/results/accuracy.json and prints the table of docs/gates.md. Exit code
1 if a bound does not hold. It needs a C++ compiler and a long double of at least 64 bits of mantissa.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpmath import ldexp, mpf
from torch import Tensor

from boolit.logic import Program, moments
from boolit.logic.formulas import formula
from boolit.logic.kernels import library, plan
from boolit.logic.kernels.library import STATUS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "logic"))
import exact_reference  # noqa: E402  (the tests' 60-digit gates)

BASES = ("or", "xnor")
SIZES = (2, 3, 4, 8, 17, 64)
TYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
LEVELS = ("baseline", "x86-64-v3", "x86-64-v4")
CHUNK_ELEMENTS = 1 << 18


class Worst(ctypes.Structure):
    """Worst of accuracy_reference.cpp."""

    _fields_ = [
        ("value", ctypes.c_double),
        ("gradient", ctypes.c_double),
        ("value_at", ctypes.c_int64),
        ("gradient_at", ctypes.c_int64),
        ("not_finite", ctypes.c_int64),
    ]


def compile_reference(folder: Path) -> ctypes.CDLL:
    """The long double reference as a library."""
    if np.finfo(np.longdouble).nmant < 63:
        sys.exit(f"long double has {np.finfo(np.longdouble).nmant + 1} bits here; the reference needs 64: run this on x86-64 Linux")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        sys.exit("no C++ compiler found (c++, g++, clang++); install one, or name it in CXX")
    target = folder / "reference.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, HERE / "accuracy_reference.cpp"], check=True)
    reference = ctypes.CDLL(str(target))
    pointer, real, whole = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64
    reference.solve.argtypes = [ctypes.c_int, whole, ctypes.c_int, *[pointer] * 4]
    reference.compare.argtypes = [whole, ctypes.c_int, *[pointer] * 5, *[real] * 5, pointer]
    return reference


def load_levels(folder: Path) -> dict[str, ctypes.CDLL]:
    """The kernels once for each instruction set: a library reads BOOLIT_INSTRUCTIONS when it is loaded."""
    loaded = {}
    for level in LEVELS if STATUS.path else ():
        copy = folder / f"gates-{level}.so"
        shutil.copy(str(STATUS.path), copy)
        os.environ["BOOLIT_INSTRUCTIONS"] = level
        kernels = ctypes.CDLL(str(copy))
        library._declare(kernels)
        if kernels.boolit_instructions().decode() == level:
            loaded[level] = kernels
    return loaded


# ------------------------------------------------------------------------------------------------ points


def draw(rng: np.random.Generator, n: int, k: int, dtype: torch.dtype) -> np.ndarray:
    """n groups of k logits that try a gate, as float64 numbers that the type holds exactly."""
    finfo = torch.finfo(dtype)
    half = dtype == torch.float16
    kinds = [_wide, _moderate, _near_ties, _equal, _switches, _close, _roots, _underflow, _zeros, _huge]
    parts = [kind(rng, n // len(kinds) + 1, k, float(finfo.eps), half) for kind in kinds]
    x = np.concatenate(parts)[rng.permutation(n)]
    reach = float(finfo.max) / (2 * k)
    return torch.tensor(np.clip(x, -reach, reach)).to(dtype).double().numpy()


def _signs(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    """Independent signs in half of the groups, one sign in each of the others."""
    return np.where(rng.random((n, 1)) < 0.5, rng.choice([-1.0, 1.0], (n, k)), rng.choice([-1.0, 1.0], (n, 1)))


def _wide(rng: np.random.Generator, n: int, k: int, _eps: float, half: bool) -> np.ndarray:
    return 10 ** rng.uniform(*((-7, 4.5) if half else (-30, 30)), (n, k)) * _signs(rng, n, k)


def _moderate(rng: np.random.Generator, n: int, k: int, _eps: float, _half: bool) -> np.ndarray:
    middle = rng.uniform(-3, 2.5, (n, 1))
    return 10 ** (middle + rng.uniform(-1, 1, (n, k)) * rng.random((n, 1))) * _signs(rng, n, k)


def _near_ties(rng: np.random.Generator, n: int, k: int, eps: float, _half: bool) -> np.ndarray:
    size = 10 ** rng.uniform(-4, 2.5, (n, 1))
    return size * (1 + eps * rng.integers(-4, 5, (n, k))) * _signs(rng, n, k)


def _equal(rng: np.random.Generator, n: int, k: int, _eps: float, _half: bool) -> np.ndarray:
    return 10 ** rng.uniform(-2, 2.2, (n, 1)) * _signs(rng, n, k)


def _switches(rng: np.random.Generator, n: int, k: int, eps: float, _half: bool) -> np.ndarray:
    """Around the numbers at which some expression gives way to another, or exp and log change their exponent."""
    small = [0.5, 1.0, 1.5, 2.0, 3.0, 16.0, 20.0, 30.0, 40.0, 80.0, 87.3, 88.0, 104.0, 700.0, 708.4, 745.2]
    switches = np.array(small + [math.log(2) * (i + 0.5) for i in range(12)] + [math.log(2 ** (i + 0.5) - 1) for i in range(8)])
    around = rng.choice(switches, (n, k)) * (1 + eps * rng.integers(-3, 4, (n, k)))
    apart = rng.choice(switches, (n, 1)) + rng.choice([0.0, 1.0, -1.0], (n, k)) * rng.choice(switches, (n, 1))
    return np.where(rng.random((n, 1)) < 0.5, around, apart) * _signs(rng, n, k)


def _close(rng: np.random.Generator, n: int, k: int, _eps: float, _half: bool) -> np.ndarray:
    centre = 10 ** rng.uniform(-2, 2.3, (n, 1))
    return (centre + rng.normal(size=(n, k)) * 10 ** rng.uniform(-8, 0.7, (n, 1))) * _signs(rng, n, k)


def _roots(rng: np.random.Generator, n: int, k: int, eps: float, _half: bool) -> np.ndarray:
    """OR is nearly 0: the last logit makes the probability of none 1/2."""
    x = -(10 ** rng.uniform(-1, 1.3, (n, k))) - math.log(k)
    none = np.logaddexp(0, x[:, :-1]).sum(1)
    left = np.maximum(math.log(2) - none, 1e-3)
    x[:, -1] = np.log(np.expm1(left)) * (1 + eps * rng.integers(-2, 3, n))
    return x


def _underflow(rng: np.random.Generator, n: int, k: int, eps: float, half: bool) -> np.ndarray:
    """One or two uncertain events beside nearly certain ones, or sizes whose product is hardly a number."""
    low, high = (86.0, 105.0) if eps > 1e-10 else (700.0, 746.0)
    tails = rng.uniform(low, high, (n, k)) * _signs(rng, n, k)
    tails[:, 0] = rng.choice([0.0, -0.0, 1e-30, -1e-30, 0.3, -2.0], n)
    total = rng.uniform(-330, -300, n) if eps < 1e-10 else rng.uniform(-46, -36, n)
    share = rng.dirichlet(np.ones(k), n)
    least = -7 if half else -30 if eps > 1e-10 else -300
    tiny = 10 ** np.maximum(total[:, None] * share, least) * _signs(rng, n, k)
    mixed = np.where(rng.random((n, k)) < 0.5, tiny, rng.uniform(1, 6, (n, k)))
    which = rng.random((n, 1))
    return np.where(which < 0.5, tails, np.where(which < 0.75, tiny, mixed))


def _zeros(rng: np.random.Generator, n: int, k: int, _eps: float, half: bool) -> np.ndarray:
    some = rng.choice([0.0, -0.0, 1e-5 if half else 1e-30, 1.0, -40.0, 100.0], (n, k)) * _signs(rng, n, k)
    return np.where(rng.random((n, k)) < 0.4, some, rng.normal(size=(n, k)) * 10 ** rng.uniform(-3, 2, (n, 1)))


def _huge(rng: np.random.Generator, n: int, k: int, eps: float, half: bool) -> np.ndarray:
    top = 4.8 if half else 308 if eps < 1e-10 else 38.5
    huge = 10 ** rng.uniform(0.8 * top, top, (n, k))
    return np.where(rng.random((n, k)) < 0.7, huge, rng.normal(size=(n, k))) * _signs(rng, n, k)


# ------------------------------------------------------------------------------------------------ results


def by_formula(x: Tensor, program: Program) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    value = formula(leaf, program, 1)
    (gradient,) = torch.autograd.grad(value, leaf, torch.ones_like(value))
    return value.detach(), gradient


def by_kernel(x: Tensor, program: Program, kernels: ctypes.CDLL) -> tuple[Tensor, Tensor]:
    laid_out = plan.plan_for(program, x.dtype, x.shape, 1)
    value, gradient = x.new_empty(laid_out.out_shape), torch.empty_like(x)
    ones = torch.ones_like(value)
    kernels.boolit_forward(laid_out.address, x.data_ptr(), value.data_ptr(), None)
    kernels.boolit_backward(laid_out.address, ones.data_ptr(), x.data_ptr(), None, gradient.data_ptr())
    return value, gradient


def bounds(form: str, k: int) -> tuple[int, int]:
    """Allowed units of u·c of a value, and of u of a derivative (docs/gates.md derives what nil adds)."""
    rounds = math.ceil(math.log2(k))
    return 4 * rounds, 16 * rounds + (2 if form == "nil" else 0)


def measure(
    reference: ctypes.CDLL, ways: dict[str, Any], base: str, type_name: str, k: int, count: int, forms: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The worst errors of a gate of k logits, for each form and way."""
    dtype = TYPES[type_name]
    finfo, single = torch.finfo(dtype), torch.finfo(torch.float32)
    narrow = dtype.itemsize == 2
    u = (single.eps if narrow else finfo.eps) / 2
    rng = np.random.default_rng([k, BASES.index(base), finfo.bits])
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for start in range(0, count, CHUNK_ELEMENTS // k):
        n = min(CHUNK_ELEMENTS // k, count - start)
        points = np.ascontiguousarray(draw(rng, n, k, dtype))
        value, c, partial = (np.empty(shape, np.longdouble) for shape in (n, n, (n, k)))
        reference.solve(BASES.index(base), n, k, *(array.ctypes.data for array in (points, value, c, partial)))
        x = torch.from_numpy(points).to(dtype)
        for form in forms:
            program = Program(((base, form),), k=k)
            mean, sd = moments(base, "il", k) if form == "nil" else (0.0, 1.0)
            for way, kernels in ways.items():
                results = by_formula(x, program) if kernels is None else by_kernel(x, program, kernels)
                got, gradient = (np.ascontiguousarray(result.double().numpy()) for result in results)
                worst = Worst()
                reference.compare(
                    n, k, *(array.ctypes.data for array in (value, c, partial, got, gradient)),
                    mean, sd, u, finfo.eps / 2 if narrow else 0.0, finfo.smallest_normal * finfo.eps * (k - 1), ctypes.addressof(worst),
                )  # fmt: skip
                record = found.setdefault((form, way), {"value": 0.0, "gradient": 0.0, "not_finite": 0})
                record["not_finite"] += worst.not_finite
                for what in ("value", "gradient"):
                    if getattr(worst, what) >= record[what]:
                        record[what] = getattr(worst, what)
                        record[f"{what}_at"] = points[getattr(worst, f"{what}_at")].tolist()
    value_bound, gradient_bound = (4, 16)
    rows = []
    for (form, way), record in found.items():
        value_bound, gradient_bound = bounds(form, k)
        within = record["value"] <= value_bound and record["gradient"] <= gradient_bound and not record["not_finite"]
        row = {"gate": base, "form": form, "type": type_name, "k": k, "way": way, "points": count}
        rows.append(row | {"value_bound": value_bound, "gradient_bound": gradient_bound, "within": within} | record)
    return rows


# ------------------------------------------------------------------------------------------------ checks of the yardstick


def check_reference(reference: ctypes.CDLL, count: int = 300) -> float:
    """The largest difference of long double from 60 digits, in float64's u·c (values) or u (derivatives)."""
    worst = 0.0
    for base in BASES:
        for k in (2, 3, 8):
            x = np.ascontiguousarray(draw(np.random.default_rng(k), count, k, torch.float64))
            value, c, partial = (np.empty(shape, np.longdouble) for shape in (count, count, (count, k)))
            reference.solve(BASES.index(base), count, k, *(array.ctypes.data for array in (x, value, c, partial)))
            for i in range(count):
                f, slopes = exact_reference.fold(base, x[i].tolist())
                limits = [_mpf(c[i]) or 1, *(max(abs(slope), mpf("1e-30")) for slope in slopes)]
                pairs = zip([value[i], *partial[i]], [f, *slopes], limits, strict=True)
                worst = max(worst, *(float(abs(_mpf(got) - exact) / limit * 2**53) for got, exact, limit in pairs))
    return worst


def _mpf(x: np.longdouble) -> mpf:
    part, exponent = np.frexp(x)
    high = float(part)
    return ldexp(mpf(high) + mpf(float(part - np.longdouble(high))), int(exponent))


def check_signs(ways: dict[str, Any], count: int) -> int:
    """How many results of the other operations differ from their base's by more than the signs that define them."""
    rng, wrong = np.random.default_rng(7), 0
    for k in (2, 5):
        x = torch.from_numpy(draw(rng, count, k, torch.float64))
        for kernels in ways.values():
            def results(op: str, x: Tensor, kernels: Any = kernels, k: int = k) -> tuple[Tensor, Tensor]:
                program = Program(((op, "il"),), k=k)
                return by_formula(x, program) if kernels is None else by_kernel(x, program, kernels)

            parity = -1 if k % 2 == 0 else 1
            pairs = [("and", "or", -1, -1), ("nand", "or", -1, 1), ("nor", "or", 1, -1), ("xor", "xnor", 1, parity)]
            for op, base, inner, outer in pairs:
                (value, gradient), (expected, slope) = results(op, x), results(base, inner * x)
                wrong += int((value != outer * expected).sum() + (gradient != inner * outer * slope).sum())
    return wrong


# ------------------------------------------------------------------------------------------------ the table


def markdown(rows: list[dict[str, Any]]) -> str:
    """Worst value and derivative of each gate, form and type by k: kernel (worst of the instruction sets) / formula."""
    lines = ["| gate, form, type | k | value: bound | kernel | formula | derivative: bound | kernel | formula |", "|---|---|---|---|---|---|---|---|"]
    keys = list(dict.fromkeys((row["gate"], row["form"], row["type"], row["k"]) for row in rows))
    for key in keys:
        mine = [row for row in rows if (row["gate"], row["form"], row["type"], row["k"]) == key]

        def worst(what: str, by_formula: bool, mine: list[dict[str, Any]] = mine) -> str:
            values = [row[what] for row in mine if (row["way"] == "formula") == by_formula]
            return f"{max(values):.1f}" if values else "–"

        gate, form, type_name, k = key
        cells = [f"{gate}_{form}, {type_name}", str(k)]
        for what in ("value", "gradient"):
            cells += [str(mine[0][f"{what}_bound"]), worst(what, False), worst(what, True)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=2_000_000, help="groups for each gate, type and k")
    parser.add_argument("--gates", nargs="+", default=BASES, choices=BASES)
    parser.add_argument("--types", nargs="+", default=tuple(TYPES), choices=tuple(TYPES))
    parser.add_argument("--k", nargs="+", type=int, default=SIZES)
    parser.add_argument("--forms", nargs="+", default=("il", "nil"), choices=("il", "nil"))
    parser.add_argument("--output", type=Path, default=HERE / "results" / "accuracy.json")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        reference, ways = compile_reference(Path(name)), {"formula": None, **load_levels(Path(name))}
        yardstick = check_reference(reference)
        print(f"long double against 60 digits: {yardstick:.3f}u at most; ways: {', '.join(ways)}", file=sys.stderr)
        wrong = check_signs(ways, 2000)
        rows = []
        for type_name in chosen.types:
            for base in chosen.gates:
                for k in chosen.k:
                    began = time.perf_counter()
                    rows += measure(reference, ways, base, type_name, k, chosen.points, tuple(chosen.forms))
                    for row in rows[-len(ways) * len(chosen.forms) :]:
                        note = "" if row["within"] else f"  BEYOND, {row['not_finite']} not finite, at {row['value_at'][:4]}, {row['gradient_at'][:4]}"
                        print(f"{base}_{row['form']} {type_name} k={k} {row['way']}: {row['value']:.2f} {row['gradient']:.2f}{note}", file=sys.stderr)
                    print(f"  {time.perf_counter() - began:.0f} s", file=sys.stderr)
    chosen.output.parent.mkdir(exist_ok=True)
    stamp = {"torch": torch.__version__, "torch_instructions": torch.backends.cpu.get_cpu_capability(), "reference_error_u": yardstick}
    chosen.output.write_text(json.dumps({"benchmark": "accuracy", "stamp": stamp, "sign_differences": wrong, "rows": rows}, indent=1))
    print(markdown(rows))
    sys.exit(not all(row["within"] for row in rows) or wrong > 0 or yardstick > 0.5)


if __name__ == "__main__":
    main()
