"""The worst errors of the exact gates on millions of adversarial points, by kernel and by the reference.

``python benchmarks/accuracy.py`` compiles a long double reference (accuracy_reference.cpp, checked against mpmath), tries
every instruction set of this machine, writes benchmarks/results/accuracy.json and prints a table. Exit
code 1 if a bound does not hold. It needs a C++ compiler and a long double of at least 64 bits of mantissa.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
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

from boolit.logic import Program, moments

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "logic"))
from adversarial import draw  # noqa: E402  (the tests have the points, the ways and the 60-digit gates)
from exact_reference import fold  # noqa: E402
from ways import Way, ways  # noqa: E402

BASES = ("or", "xnor")
SIZES = (2, 3, 4, 8, 17, 64)
TYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
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
        sys.exit(
            f"long double has {np.finfo(np.longdouble).nmant + 1} bits here; the reference needs 64: run this on x86-64 Linux"
        )
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        sys.exit("no C++ compiler found (c++, g++, clang++); install one, or name it in CXX")
    target = folder / "reference.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", target, HERE / "accuracy_reference.cpp"], check=True)
    reference = ctypes.CDLL(str(target))
    pointer, real, whole = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64
    reference.solve.argtypes = [ctypes.c_int, whole, ctypes.c_int, *[pointer] * 4]
    reference.compare.argtypes = [whole, ctypes.c_int, *[pointer] * 6, *[real] * 6, pointer]
    return reference


# ------------------------------------------------------------------------------------------------ results


def bounds(form: str, k: int) -> tuple[int, int]:
    """Return the allowed units of u·c of a value, and of u · `reach_of` of a derivative."""
    return 4 * math.ceil(math.log2(k)), 16 + (2 if form == "nil" else 0)


def reach_of(points: np.ndarray) -> np.ndarray:
    """Return the bound of the derivatives of each group over that of a pair (docs/accuracy-and-speed.md derives it)."""
    k, largest = points.shape[1], np.abs(points).max(1)
    levels = math.ceil(math.log2(k))
    return np.ascontiguousarray(levels + 7 / 16 * levels * (levels - 1) * largest + (levels - 1) * 2**levels / 2)


def measure(
    reference: ctypes.CDLL, base: str, type_name: str, k: int, count: int, forms: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The worst errors of a gate of k logits, for each form and way."""
    dtype = TYPES[type_name]
    finfo, single = torch.finfo(dtype), torch.finfo(torch.float32)
    narrow, subnormal = dtype.itemsize == 2, finfo.smallest_normal * finfo.eps
    u = (single.eps if narrow else finfo.eps) / 2
    rng = np.random.default_rng([k, BASES.index(base), finfo.bits])
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for start in range(0, count, CHUNK_ELEMENTS // k):
        n = min(CHUNK_ELEMENTS // k, count - start)
        points = np.ascontiguousarray(draw(rng, n, k, dtype))
        value, c, partial = (np.empty(shape, np.longdouble) for shape in (n, n, (n, k)))
        reference.solve(BASES.index(base), n, k, *(array.ctypes.data for array in (points, value, c, partial)))
        x = torch.from_numpy(points).to(dtype)
        reach = reach_of(points)
        for form in forms if k <= 60 else ("il",):
            program = Program(((base, form),), k=k)
            mean, sd = moments(base, "il", k) if form == "nil" else (0.0, 1.0)
            for way, compute in ways().items():
                got, gradient = (np.ascontiguousarray(result.double().numpy()) for result in compute(x, program))
                worst = Worst()
                reference.compare(
                    n, k, *(array.ctypes.data for array in (value, c, partial, got, gradient, reach)),
                    mean, sd, u, finfo.eps / 2 if narrow else 0.0, 2 * (k - 1) * subnormal, finfo.max, ctypes.addressof(worst),
                )  # fmt: skip
                record = found.setdefault((form, way), {"value": 0.0, "gradient": 0.0, "not_finite": 0})
                record["not_finite"] += worst.not_finite
                for what in ("value", "gradient"):
                    if getattr(worst, what) >= record[what]:
                        record[what] = getattr(worst, what)
                        record[f"{what}_at"] = points[getattr(worst, f"{what}_at")].tolist()
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
                f, slopes = fold(base, x[i].tolist())
                limits = [_mpf(c[i]) or 1, *(max(abs(slope), mpf("1e-30")) for slope in slopes)]
                pairs = zip([value[i], *partial[i]], [f, *slopes], limits, strict=True)
                worst = max(worst, *(float(abs(_mpf(got) - exact) / limit * 2**53) for got, exact, limit in pairs))
    return worst


def _mpf(x: np.longdouble) -> mpf:
    part, exponent = np.frexp(x)
    high = float(part)
    return ldexp(mpf(high) + mpf(float(part - np.longdouble(high))), int(exponent))


def check_signs(compute: Way, count: int) -> int:
    """How many results of the other operations differ from their base's by more than the signs that define them."""
    rng, wrong = np.random.default_rng(7), 0
    for k in (2, 5):
        x = torch.from_numpy(draw(rng, count, k, torch.float64))
        parity = -1 if k % 2 == 0 else 1
        for op, base, inner, outer in (
            ("and", "or", -1, -1),
            ("nand", "or", -1, 1),
            ("nor", "or", 1, -1),
            ("xor", "xnor", 1, parity),
        ):
            value, gradient = compute(x, Program(((op, "il"),), k=k))
            expected, slope = compute(inner * x, Program(((base, "il"),), k=k))
            wrong += int((value != outer * expected).sum() + (gradient != inner * outer * slope).sum())
    return wrong


# ------------------------------------------------------------------------------------------------ the table


def markdown(rows: list[dict[str, Any]]) -> str:
    """Two tables, of values and of derivatives: the worst of all instruction sets by kernel / the worst by the reference."""
    sizes = sorted({row["k"] for row in rows})
    gates = list(dict.fromkeys((row["gate"], row["form"], row["type"]) for row in rows))
    lines = []
    for what, title, place in (("value", "value, in u·c", 0), ("gradient", "derivatives, in u", 1)):
        heads = [f"k = {k}: at most {bounds('il', k)[place]}" for k in sizes]
        lines += [f"| {title} | {' | '.join(heads)} |", "|---" * (len(sizes) + 1) + "|"]
        for gate, form, type_name in gates:
            cells = []
            for k in sizes:
                mine = [row for row in rows if (row["gate"], row["form"], row["type"], row["k"]) == (gate, form, type_name, k)]
                kernels = max((row[what] for row in mine if row["way"] != "reference"), default=None)
                formulas = max((row[what] for row in mine if row["way"] == "reference"), default=None)
                cells.append(
                    " / ".join("–" if worst is None else f"{worst:.1f}" for worst in (kernels, formulas)) if mine else ""
                )
            lines.append(f"| `{gate}_{form}` {type_name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--points",
        type=int,
        default=2_000_000,
        help="pairs for each gate and type; of larger groups as many as have so many logits",
    )
    parser.add_argument("--gates", nargs="+", default=BASES, choices=BASES)
    parser.add_argument("--types", nargs="+", default=tuple(TYPES), choices=tuple(TYPES))
    parser.add_argument("--k", nargs="+", type=int, default=SIZES)
    parser.add_argument("--forms", nargs="+", default=("il", "nil"), choices=("il", "nil"))
    parser.add_argument("--output", type=Path, default=HERE / "results" / "accuracy.json")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        reference = compile_reference(Path(folder))
        yardstick = check_reference(reference)
        print(f"long double against 60 digits: {yardstick:.3f}u at most; ways: {', '.join(ways())}", file=sys.stderr)
        wrong = sum(check_signs(compute, chosen.points // 100) for compute in ways().values())
        rows: list[dict[str, Any]] = []
        for type_name, base, k in itertools.product(chosen.types, chosen.gates, chosen.k):
            if k > 4 and TYPES[type_name].itemsize == 2:  # float32, rounded once: nothing new
                continue
            began = time.perf_counter()
            latest = measure(reference, base, type_name, k, 2 * chosen.points // k, tuple(chosen.forms))
            for row in latest:
                beyond = (
                    ""
                    if row["within"]
                    else f" BEYOND, {row['not_finite']} not finite, at {row['value_at'][:4]}, {row['gradient_at'][:4]}"
                )
                print(
                    f"{base}_{row['form']} {type_name} k={k} {row['way']}: {row['value']:.2f} {row['gradient']:.2f}{beyond}",
                    file=sys.stderr,
                )
            print(f"  {time.perf_counter() - began:.0f} s", file=sys.stderr)
            rows += latest
    chosen.output.parent.mkdir(exist_ok=True)
    capability = torch.backends.cpu.get_cpu_capability()
    stamp = {"torch": torch.__version__, "torch_instructions": capability, "reference_error_u": yardstick}
    head = {"benchmark": "accuracy", "format": 1, "stamp": stamp, "sign_differences": wrong}
    lines = ",\n".join(json.dumps(row) for row in rows)
    chosen.output.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n')
    print(markdown(rows))
    sys.exit(not all(row["within"] for row in rows) or wrong > 0 or yardstick > 0.5)


if __name__ == "__main__":
    main()
