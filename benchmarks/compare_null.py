"""How often ``boolit compare`` is wrong: made tables in which no activation can be better, and some in which one is.

* **Null tables**: 50 to 2,000 rows, 3 to 30 columns of independent normal numbers (a fifth of the tables also have a column of
  texts, a fifth have missing values), and a target that is drawn independently of all of them: 2 to 5 classes, of equal or
  unequal shares, or a quantity (normal, or with heavy tails). Whatever a network learns from such a table is noise, so every
  verdict that says "significantly better" is wrong. At most 5 % of them may be, and what chance adds to 5 % of 200: 16.
* **Parity tables**: 500 to 2,000 rows, 2 to 6 columns of independent normal numbers; the class is whether the signs of the
  first two agree, and 5 % of the labels are wrong. Networks have one hidden layer and the parameters of two ReLU units. That
  the signs of x and y agree is |x + y| > |x − y|, which takes four rectifiers, while one XNOR gate, which costs as much as two
  ReLU units, *is* the target: so an activation with an XNOR in it is truly better here than relu. It counts as found if the
  verdict says that xnor_nail or or_and_xnor_nail_d is significantly better than relu.

Everything but the size of the network on parity tables is compare's default: six activations, ten splits, the epochs, the
correction. Nothing here looks at a result: tables follow from --seed and their number alone. The output file holds one line a
table; the same command goes on where it was stopped.

    python benchmarks/compare_null.py --out compare_null.jsonl --jobs 2
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

NULL, PARITY = 200, 40
MOST_FALSE, LEAST_FOUND = 16, 32
XNOR = ("xnor_nail", "or_and_xnor_nail_d")


def null_table(drawn: np.random.Generator) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """A table whose target is independent of its columns, and what it is like."""
    rows = round(float(np.exp(drawn.uniform(np.log(50), np.log(2000)))))
    columns, classes = int(drawn.integers(3, 31)), int(drawn.integers(1, 6))
    x = drawn.normal(size=(rows, columns)) * np.exp(drawn.normal(size=columns)) + drawn.normal(size=columns)
    table: dict[str, list[Any]] = {f"x{i}": [repr(float(v)) for v in x[:, i]] for i in range(columns)}
    texts, missing = bool(drawn.random() < 0.2), bool(drawn.random() < 0.2)
    if texts:
        table["text"] = drawn.choice(["red", "green", "blue", "grey"], rows).tolist()
    if missing:
        table["x0"] = ["" if gone else value for value, gone in zip(table["x0"], drawn.random(rows) < 0.1, strict=True)]
    if classes == 1:
        heavy = bool(drawn.random() < 0.5)
        values = drawn.standard_t(3, rows) if heavy else drawn.normal(size=rows)
        table["target"] = [repr(float(10 + 5 * value)) for value in values]
    else:
        shares = np.ones(classes) if drawn.random() < 0.5 else drawn.uniform(0.3, 1, classes)
        table["target"] = [f"class {i}" for i in drawn.choice(classes, rows, p=shares / shares.sum())]
    return table, {"rows": rows, "columns": columns, "classes": classes, "texts": texts, "missing": missing}


def parity_table(drawn: np.random.Generator) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """A table whose class is whether the signs of two columns agree, and what it is like."""
    rows, columns = int(drawn.integers(500, 2001)), int(drawn.integers(2, 7))
    x = drawn.normal(size=(rows, columns))
    agree = (x[:, 0] > 0) == (x[:, 1] > 0)
    labels = agree ^ (drawn.random(rows) < 0.05)
    table: dict[str, list[Any]] = {f"x{i}": [repr(float(v)) for v in x[:, i]] for i in range(columns)}
    table["target"] = ["same" if label else "different" for label in labels]
    return table, {"rows": rows, "columns": columns}


def examine(kind: str, number: int, seed: int) -> dict[str, Any]:
    """Makes a table, compares on it in a folder of its own, and says what the verdict says."""
    import torch

    from boolit.lab.compare.config import CompareConfig
    from boolit.lab.compare.job import CompareJob

    torch.set_num_threads(1)
    drawn = np.random.default_rng([seed, {"null": 0, "parity": 1}[kind], number])
    table, about = (null_table if kind == "null" else parity_table)(drawn)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BOOLIT_DATA"] = f"{folder}/data"
        path = Path(folder) / "table.csv"
        lines = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
        # Two ReLU units: a weight for each column, a bias, a scale and a shift each; and one output with its bias.
        options: dict[str, Any] = {"budget": 2 * (about["columns"] + 4) + 1, "layers": 1} if kind == "parity" else {}
        job = CompareJob.prepare(CompareConfig(path, "target", **options), progress=False)
        verdict = job.run(Path(folder) / "out", progress=False).verdict
    assert verdict is not None
    text = str(verdict)
    pairs = {f"{pair.first} {pair.second}": [pair.difference.mean, pair.p, pair.p_holm] for pair in verdict.comparison.pairs}
    return {
        "kind": kind,
        "number": number,
        "seed": seed,
        **about,
        "seconds": round(time.monotonic() - started, 1),
        "said": "significantly better" in text,
        "found": any("relu" in verdict.wins.get(spec, []) for spec in XNOR),
        "learnt": verdict.learnt,
        "means": {name: own.mean for name, own in verdict.comparison.estimates.items()},
        "pairs": pairs,
        "verdict": text,
    }


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The two counts, and whether they are within their bounds."""
    null = [result for result in results if result["kind"] == "null"]
    parity = [result for result in results if result["kind"] == "parity"]
    said, found = sum(result["said"] for result in null), sum(result["found"] for result in parity)
    # Without the rule that a winner must be better than guessing, the corrected tests alone would have said:
    networks = sum(any(p <= 0.05 for p in _between_networks(result)) for result in null)
    return {
        "null tables": len(null),
        "said significantly better": said,
        "a corrected p of two activations ≤ 0.05": networks,
        "parity tables": len(parity),
        "found": found,
        "minutes": round(sum(result["seconds"] for result in results) / 60, 1),
        "met": len(null) >= NULL and len(parity) >= PARITY and said <= MOST_FALSE and found >= LEAST_FOUND,
    }


def _between_networks(result: dict[str, Any]) -> list[float]:
    guesses = ("majority class", "target mean")
    return [p for name, (_, _, p) in result["pairs"].items() if not name.endswith(guesses)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a file of one JSON object a table")
    parser.add_argument("--tables", type=int, nargs=2, default=(NULL, PARITY), metavar=("NULL", "PARITY"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    arguments = parser.parse_args()
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    results = [result for result in map(json.loads, lines) if result["seed"] == arguments.seed]
    done = {(result["kind"], result["number"]) for result in results}
    null, parity = ([(kind, i) for i in range(n)] for kind, n in zip(("null", "parity"), arguments.tables, strict=True))
    wanted = [table for table in [*parity[:8], *null[:40], *parity[8:], *null[40:]] if table not in done]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.out.open("a") as file:
        for future in as_completed([pool.submit(examine, kind, number, arguments.seed) for kind, number in wanted]):
            results.append(future.result())
            print(json.dumps(results[-1]), file=file, flush=True)
            print(f"{len(results)} tables: {summarise(results)}", file=sys.stderr, flush=True)
    print(json.dumps(summarise(results), indent=2))


if __name__ == "__main__":
    main()
