"""How often ``boolit compare`` is wrong: tables in which no activation can be better, and tables in which one is.

* **Null tables**: 50 to 2,000 rows and 3 to 30 independent columns (some with texts or gaps). The target is drawn independently
  of all columns: 2 to 5 classes or a number. Metric and split are drawn, too: accuracy, balanced accuracy, AUC, log loss, RMSE,
  R² or the mean absolute error; random splits or splits by group (whose rows share their target more often than others). Every
  "significantly better" is wrong. At most 16 of 200 may say it: 5 %, and what chance adds to that.
* **Planted tables**: the target depends on the product of two columns (for classes, on whether their signs agree, 5 % wrong
  labels), by accuracy, AUC or R², with random splits or splits by group. Networks have one hidden layer and the parameters of
  two ReLU units, which are too few for the target, while a single XNOR gate is enough for it. The difference counts as found if
  an activation with an XNOR is called significantly better than relu.

Tables follow from --seed and their number alone. The output file holds one line per table; the same command resumes.

    python benchmarks/compare_null.py --out compare_null.jsonl --jobs 2
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NULL, PLANTED = 200, 36
MOST_FALSE, LEAST_FOUND = 16, 29
XNOR = ("xnor_nail", "or_and_xnor_nail_d")
METRICS = {
    "binary": ("accuracy", "balanced_accuracy", "roc_auc", "neg_log_loss"),
    "classes": ("accuracy", "balanced_accuracy", "roc_auc_ovr", "neg_log_loss"),
    "regression": ("neg_root_mean_squared_error", "r2", "neg_mean_absolute_error"),
}


def null_table(random: np.random.Generator) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table whose target is independent of its columns, and the options of the comparison."""
    rows = round(float(np.exp(random.uniform(np.log(50), np.log(2000)))))
    columns, classes = int(random.integers(3, 31)), int(random.integers(1, 6))
    x = random.normal(size=(rows, columns)) * np.exp(random.normal(size=columns)) + random.normal(size=columns)
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
    if random.random() < 0.2:
        table["text"] = random.choice(["red", "green", "blue", "gray"], rows)
    if random.random() < 0.2:
        table.loc[random.random(rows) < 0.1, "x0"] = np.nan
    groups = np.arange(rows) // 4 if rows >= 200 and random.random() < 0.4 else None
    shared = np.zeros(rows) if groups is None else random.normal(size=groups.max() + 1)[groups]
    if classes == 1:
        noise = random.standard_t(3, rows) if random.random() < 0.5 else random.normal(size=rows)
        table["target"] = 10 + 5 * (noise + shared)
    else:
        shares = np.ones(classes) if random.random() < 0.5 else random.uniform(0.3, 1, classes)
        ranks = pd.Series(random.normal(size=rows) + shared).rank(pct=True).to_numpy()
        table["target"] = [f"class {i}" for i in np.searchsorted(np.cumsum(shares / shares.sum())[:-1], ranks)]
    task = "regression" if classes == 1 else "binary" if classes == 2 else "classes"
    options: dict[str, Any] = {"metric": str(random.choice(METRICS[task]))}
    if groups is not None:
        table["group"] = groups
        options["groups"] = "group"
    return table, options


def planted_table(random: np.random.Generator, number: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table in which an XNOR is truly better than relu, and the options of the comparison."""
    rows, columns = int(random.integers(500, 2001)), int(random.integers(2, 7))
    x = random.normal(size=(rows, columns))
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
    metric = ("accuracy", "roc_auc", "r2")[number % 3]
    product = np.sign(x[:, 0] * x[:, 1]) * np.minimum(np.abs(x[:, 0]), np.abs(x[:, 1]))
    if metric == "r2":
        table["target"] = product + 0.1 * random.normal(size=rows)
    else:
        table["target"] = np.where((product > 0) ^ (random.random(rows) < 0.05), "same", "different")
    # Two ReLU units: a weight for each column, a bias, a scale and a shift each; and one output with its bias.
    options: dict[str, Any] = {"metric": metric, "budget": 2 * (columns + 4) + 1, "layers": 1}
    if number % 2:
        table["group"] = np.arange(rows) // 5
        options["groups"] = "group"
    return table, options


def examine(kind: str, number: int, seed: int) -> dict[str, Any]:
    """Compare on a table in a temporary folder and return what the verdict says."""
    import torch

    from boolit.lab.compare.config import CompareConfig
    from boolit.lab.compare.job import CompareJob

    torch.set_num_threads(1)
    random = np.random.default_rng([seed, kind == "planted", number])
    table, options = null_table(random) if kind == "null" else planted_table(random, number)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        table.to_csv(path, index=False)
        job = CompareJob.prepare(CompareConfig(path, "target", **options))
        verdict = job.run(Path(folder) / "out", progress=False).verdict
    assert verdict is not None
    activations = set(verdict.activations)
    between = [pair.p_holm for pair in verdict.comparison.pairs if {pair.first, pair.second} <= activations]
    return {
        "kind": kind,
        "number": number,
        "seed": seed,
        "rows": len(table),
        "columns": table.shape[1] - 1,
        **options,
        "seconds": round(time.monotonic() - started, 1),
        "claims": verdict.wins,
        "found": any("relu" in verdict.wins.get(spec, []) for spec in XNOR),
        "smallest_p": min(between),
        "means": {name: score.mean for name, score in verdict.comparison.estimates.items()},
        "verdict": str(verdict),
    }


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts, and whether they are within their bounds."""
    null = [result for result in results if result["kind"] == "null"]
    planted = [result for result in results if result["kind"] == "planted"]
    false, found = sum(bool(result["claims"]) for result in null), sum(result["found"] for result in planted)
    return {
        "null tables": len(null),
        "false claims": false,
        "a corrected p of two activations ≤ 0.05": sum(result["smallest_p"] <= 0.05 for result in null),
        "planted tables": len(planted),
        "found": found,
        "minutes": round(sum(result["seconds"] for result in results) / 60, 1),
        "met": len(null) >= NULL and len(planted) >= PLANTED and false <= MOST_FALSE and found >= LEAST_FOUND,
    }


def main() -> None:
    """Examine the tables that are missing from the output file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file with one JSON object per table")
    parser.add_argument("--tables", type=int, nargs=2, default=(NULL, PLANTED), metavar=("NULL", "PLANTED"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    arguments = parser.parse_args()
    lines = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    results = [result for result in map(json.loads, lines) if result["seed"] == arguments.seed]
    done = {(result["kind"], result["number"]) for result in results}
    tables = [(kind, i) for kind, n in zip(("planted", "null"), arguments.tables[::-1], strict=True) for i in range(n)]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.out.open("a") as file:
        wanted = [table for table in tables if table not in done]
        for future in as_completed([pool.submit(examine, kind, number, arguments.seed) for kind, number in wanted]):
            results.append(future.result())
            print(json.dumps(results[-1]), file=file, flush=True)
            print(f"{len(results)} tables: {summarize(results)}", file=sys.stderr, flush=True)
    print(json.dumps(summarize(results), indent=2))


if __name__ == "__main__":
    main()
