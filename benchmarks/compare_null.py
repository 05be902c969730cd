"""How often ``boolit compare`` is wrong: tables in which no activation can be better, and tables in which one is.

* **Null tables**: the target is drawn independently of all columns, so every "significantly better" is wrong. The metrics
  (accuracy, balanced accuracy, AUC, log loss, R², RMSE) and the kinds of split (random, by group, by time) take turns. Rows of
  a group have similar targets, and some tables have texts or gaps. At most 16 of 200 verdicts may name a winner: 5 %, and
  what chance adds to that.
* **Planted tables**: the target depends on the product of two columns: on the sign of it, with 5 % wrong labels, or on a number
  like it. Networks have one hidden layer and the parameters of two ReLU units, which are too few, while a single XNOR gate is
  enough. Metrics (accuracy, AUC, R²) and kinds of split (random, by group) take turns. A difference counts as found if an
  activation with an XNOR is called significantly better than ReLU. For every metric and kind of split, most must be found: a
  network of ReLUs sometimes learns half of the product, and then a few splits cannot tell.

Networks for null tables have 1,000 parameters; all other options are at their defaults. A table follows from --seed and its
number alone. The output file has one row per table; the same command resumes.

    nice python benchmarks/compare_null.py --out compare_null.csv
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NULL, PLANTED = 200, 18
MAX_FALSE = 16
NULL_METRICS = ("accuracy", "balanced_accuracy", "roc_auc", "neg_log_loss", "r2", "neg_root_mean_squared_error")
NULL_SPLITS = ("random", "group", "random", "group", "time")
PLANTED_METRICS = ("accuracy", "roc_auc", "r2")
PLANTED_SPLITS = ("random", "group")
XNOR = ("xnor_nail", "or_and_xnor_nail_d")
COLUMNS = ["kind", "number", "seed", "metric", "split", "rows", "seconds", "claims", "found", "smallest_p", "verdict"]


def null_table(random: np.random.Generator, number: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table whose target is independent of its columns, and the options of the comparison."""
    metric = NULL_METRICS[number % len(NULL_METRICS)]
    split = NULL_SPLITS[number // len(NULL_METRICS) % len(NULL_SPLITS)]
    rows = round(float(np.exp(random.uniform(np.log(60), np.log(1000)))))
    columns = int(random.integers(3, 13))
    x = random.normal(size=(rows, columns)) * np.exp(random.normal(size=columns)) + random.normal(size=columns)
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
    if random.random() < 0.2:
        table["text"] = random.choice(["red", "green", "blue", "gray"], rows)
    if random.random() < 0.2:
        table.loc[random.random(rows) < 0.1, "x0"] = np.nan
    groups = np.arange(rows) // 4
    shared = random.normal(size=groups.max() + 1)[groups] if split == "group" else np.zeros(rows)
    noise = random.standard_t(3, rows) if random.random() < 0.5 else random.normal(size=rows)
    if metric in ("r2", "neg_root_mean_squared_error"):
        table["target"] = 10 + 5 * (noise + shared)
    else:
        classes = 2 if metric == "roc_auc" else int(random.integers(2, 5))
        shares = np.cumsum(random.uniform(0.4, 1, classes))
        ranks = pd.Series(noise + shared).rank(pct=True).to_numpy()
        table["target"] = [f"class {i}" for i in np.searchsorted(shares[:-1] / shares[-1], ranks)]
    return _with_split(table, split, random), {"metric": metric, "budget": 1000}


def planted_table(random: np.random.Generator, number: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table in which an XNOR is truly better than ReLU, and the options of the comparison."""
    metric = PLANTED_METRICS[number % len(PLANTED_METRICS)]
    split = PLANTED_SPLITS[number // len(PLANTED_METRICS) % len(PLANTED_SPLITS)]
    rows, columns = int(random.integers(600, 1201)), int(random.integers(3, 7))
    x = random.normal(size=(rows, columns))
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
    product = np.sign(x[:, 0] * x[:, 1]) * np.minimum(np.abs(x[:, 0]), np.abs(x[:, 1]))
    if metric == "r2":
        table["target"] = product + 0.1 * random.normal(size=rows)
    else:
        table["target"] = np.where((product > 0) ^ (random.random(rows) < 0.05), "same", "different")
    # Two ReLU units: a weight for each column, a bias, a scale and a shift each; and one output with its bias.
    return _with_split(table, split, random), {"metric": metric, "budget": 2 * (columns + 4) + 1, "layers": 1}


def _with_split(table: pd.DataFrame, split: str, random: np.random.Generator) -> pd.DataFrame:
    if split == "group":
        return table.assign(group=np.arange(len(table)) // 4)
    if split == "time":
        return table.assign(time=pd.Timestamp("2024-01-01") + pd.to_timedelta(random.permutation(len(table)), unit="h"))
    return table


def examine(kind: str, number: int, seed: int) -> dict[str, Any]:
    """Compare on a table in a temporary folder and return what the verdict says, as a row of the output file."""
    import torch

    from boolit.lab.compare import CompareConfig
    from boolit.lab.compare.job import CompareJob

    torch.set_num_threads(1)
    random = np.random.default_rng([seed, kind == "planted", number])
    table, options = (null_table if kind == "null" else planted_table)(random, number)
    split = next((name for name in ("group", "time") if name in table), "random")
    options |= {"groups": "group"} if split == "group" else {"time": "time"} if split == "time" else {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        table.to_csv(path, index=False)
        job = CompareJob.prepare(CompareConfig(path, "target", **options))
        verdict = job.run(Path(folder, "out"), progress=False).verdict
    assert verdict is not None
    activations = set(verdict.activations)
    p_values = [pair.p_holm for pair in verdict.pairs if {pair.first, pair.second} <= activations]
    values = {
        "kind": kind,
        "number": number,
        "seed": seed,
        "metric": options["metric"],
        "split": split,
        "rows": len(table),
        "seconds": round(time.monotonic() - started, 1),
        "claims": "; ".join(f"{winner} > {' '.join(losers)}" for winner, losers in verdict.wins.items()),
        "found": int(any("relu" in verdict.wins.get(spec, []) for spec in XNOR)),
        "smallest_p": f"{min(p_values):.3g}",
        "verdict": str(verdict),
    }
    return {name: str(values[name]) for name in COLUMNS}


def summarize(rows: list[dict[str, str]]) -> str:
    """Return the counts in a line, and whether they are within their bounds."""
    null = [row for row in rows if row["kind"] == "null"]
    planted = [row for row in rows if row["kind"] == "planted"]
    false, found = sum(bool(row["claims"]) for row in null), [row["found"] == "1" for row in planted]
    kinds = pd.Series(found).groupby([f"{row['metric']} {row['split']}" for row in planted]).mean()
    met = false <= MAX_FALSE and bool((kinds > 0.5).all())
    minutes = sum(float(row["seconds"]) for row in rows) / 60
    return (
        f"{false} false winners in {len(null)} null tables (at most {MAX_FALSE} of {NULL}), {sum(found)} of {len(planted)} "
        f"planted differences found (more than half of every kind): {'met' if met else 'NOT MET'}; {minutes:.1f} minutes"
    )


def main() -> None:
    """Examine the tables that are missing from the output file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV file with one row per table")
    parser.add_argument("--tables", type=int, nargs=2, default=(NULL, PLANTED), metavar=("NULL", "PLANTED"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    arguments = parser.parse_args()
    if not arguments.out.exists():
        arguments.out.write_text(",".join(COLUMNS) + "\n")
    with arguments.out.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == str(arguments.seed)]
    done = {(row["kind"], int(row["number"])) for row in rows}
    tables = [(kind, i) for kind, n in zip(("null", "planted"), arguments.tables, strict=True) for i in range(n)]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        missing = [table for table in tables if table not in done]
        futures = [pool.submit(examine, kind, number, arguments.seed) for kind, number in missing]
        try:
            for future in as_completed(futures):
                rows.append(future.result())
                writer.writerow(rows[-1])
                file.flush()
                print(summarize(rows), file=sys.stderr, flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    print(summarize(rows))


if __name__ == "__main__":
    main()
