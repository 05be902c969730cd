"""Write CSVs of docs/evidence, and what is made of them.

    boolit run parity --out results/parity
    python benchmarks/evidence.py runs results/parity parity    # writes docs/evidence/parity.csv
    python benchmarks/evidence.py paper                         # summaries, figures and tables of the paper

``runs`` writes one row per run: an accuracy is a fraction, and the value of a diverged run is empty. In a comparison, ``seed``
is the number of the split. ``paper`` reads ``docs/evidence/paper`` and writes ``src/boolit/lab/paper/ours``, the figures of
``docs/images/paper`` and the marked blocks of ``docs/paper.md``.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from boolit.lab.paper.claims import claim_table
from boolit.lab.paper.measured import FIGURES, SAME_RUNS, agreement, beside_printed, columns, label_of, summarize
from boolit.lab.paper.printed import labels, table, tables
from boolit.lab.results.store import Store
from boolit.lab.studies import load

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
SUMMARIES = ROOT / "src" / "boolit" / "lab" / "paper" / "ours"
PAGE = ROOT / "docs" / "paper.md"
IMAGES = ROOT / "docs" / "images" / "paper"
DRAWN = ("mlp-mnist", "cnn-mnist", "mlp-covtype", "resnet50-cifar10", "jsb")
BLOCK = re.compile(r"<!-- (table|claims|glance|factors) ?([\w-]*) -->\n.*?<!-- end -->", re.DOTALL)
# Of a:parity by parameter count: three layers of width w, which gates halve (f = 1/2).
WIDTHS = {round(9 * w + 2 * (f * w * w + w) + f * w + 1): w for w in (8, 16, 32, 64, 128, 256) for f in (1, 0.5)}
SOLVED = ("parity", "xor")  # tasks that a run solves or does not
WIDE = 2  # columns of a printed table in one table of the page
# Points of the MNIST protocol in docs/evidence/mnist-factors.csv: the sweeps instead of the text.
FACTORS = {
    "rows": "60,000 training rows instead of 50,000",
    "betas": "the searched numbers as betas instead of 1 − number",
    "schedule": "triangular schedule instead of one-cycle",
    "decay": "no weight decay on batch norm",
    "widths": "first layer wider than the second instead of equal widths",
}


def write_runs(folder: Path, name: str, to: Path = EVIDENCE) -> int:
    """Write the runs that are not trials of a search. Return their number."""
    metric = load(folder).plan.study.metric.key
    with Store(folder) as store:
        frame = store.frame()
    frame = frame[~frame["trial"] & frame["stage"].isna()]
    values = {
        "study": name,
        "activation": frame["activation"],
        "parameters": frame["size"],
        "depth": frame["depth"],
        "seed": frame["split"].fillna(frame["seed"]).astype(int),
        "metric": metric,
        "value": frame[metric].map("{:.6g}".format).where(frame["state"] == "finished", ""),
        "seconds": frame["seconds"].map("{:.3g}".format),
    }
    order = ["depth", "parameters", "activation", "seed"]
    frame.assign(**values)[list(values)].sort_values(order).to_csv(to / f"{name}.csv", index=False)
    return len(frame)


def cells_of_runs(folder: Path = EVIDENCE / "paper") -> pd.DataFrame:
    """Return the summaries of all runs of a folder of evidence, one row per cell."""
    return pd.concat([summarize(pd.read_csv(path), label_of(path.stem)) for path in sorted(folder.glob("*.csv"))])


def fill(page: str, cells: pd.DataFrame) -> str:
    """Return a page with its marked blocks made again from the summaries."""

    def block(match: re.Match[str]) -> str:
        kind, name = match.groups()
        make = {"table": lambda: results(name, cells), "claims": lambda: claims(cells), "glance": lambda: glance(cells)}
        text = (make | {"factors": factors})[kind]()
        return f"<!-- {f'{kind} {name}'.strip()} -->\n{text}\n<!-- end -->"

    return BLOCK.sub(block, page)


def agreement_line(label: str, cells: pd.DataFrame) -> str:
    """Return how many cells of a table or figure were run, and how well they agree with the printed ones."""
    if label not in labels():
        ours = cells[cells["label"] == label]
        return f"{len(ours)} cells, n = {', '.join(map(str, sorted(set(ours['n']))))}; the paper prints no numbers."
    kinds = sorted(set(beside_printed(label, cells)["kind"]))
    if not kinds:
        return f"Not run yet: 0 of {len(table(label))} cells."
    return f"{' and '.join(kinds).capitalize()}: {agreement(label, cells)}"


def results(name: str, cells: pd.DataFrame) -> str:
    """Return the line and the tables of a table or figure of the paper."""
    label = label_of(name)
    ours = cells[cells["label"] == label]
    line = agreement_line(label, cells)
    if (EVIDENCE / "paper" / f"{name}.csv").exists():
        line += f" [CSV](evidence/paper/{name}.csv)"
    parts = [line]
    if name in DRAWN and len(ours):
        shown = "ranks" if set(ours["kind"]) == {"analogue"} else "means"
        printed = ", and the printed ones as hollow marks" if label in labels() else ""
        parts.append(f"![{label}: our {shown}{printed}](images/paper/{name}.png){{.scroll}}")
    if label in SAME_RUNS:
        parts[0] += f" Its rows are those of {SAME_RUNS[label]}."
    elif label in labels():
        both = beside_printed(label, cells)
        run = [column for column in columns(label) if column in set(both["column"])]
        parts += [_grid(both, run[first : first + WIDE]) for first in range(0, len(run), WIDE)]
    else:
        texts = [_text(*row) for row in zip(ours["mean"], ours["standard_error"], ours["n"], strict=True)]
        long = ours.assign(text=texts, activation=[f"`{spec}`" for spec in ours["activation"]])
        if name == "parity8":
            long["column"] = [re.sub(r"^\d+", lambda n: f"width {WIDTHS[int(n[0])]}", column) for column in long["column"]]
        grid = long.pivot(index="activation", columns="column", values="text").fillna("")
        grid = grid[sorted(grid, key=lambda column: (len(column), column))]
        if name in SOLVED:
            runs = pd.read_csv(EVIDENCE / "paper" / f"{name}.csv")
            solved = runs["value"].ge(0.99).groupby(runs["activation"]).sum()
            grid["runs that reach 99 %"] = [str(solved[spec.strip("`")]) for spec in grid.index]
        grid = grid.T.rename_axis("") if len(grid.columns) > len(grid) else grid  # long rather than wide
        parts.append(_markdown([str(grid.index.name), *grid], ([row, *grid.loc[row]] for row in grid.index)))
    return "\n\n".join(parts)


def _text(mean: float, error: float, n: int | None = None) -> str:
    digits = 2 if mean > 1 else 4
    text = f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if error == error else "") + (f" ({n})" if n else "")
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _grid(both: pd.DataFrame, shown: list[str]) -> str:
    """Return the printed cells and ours, with their difference or, for analogues, their ranks in the column."""
    analogue = set(both["kind"]) == {"analogue"}
    titles = [f"{column} {part}" for column in shown for part in ("printed", "ours (n)", "ranks" if analogue else "Δ / s.e.")]
    ranks = both.groupby("column")[["printed", "mean"]].rank(ascending=False, method="min")
    both = both.assign(ranks=[f"{theirs:.0f} → {ours:.0f}" for theirs, ours in ranks.itertuples(index=False)])
    lines = []
    for spec, group in both[both["column"].isin(shown)].groupby("activation", sort=False):
        line, by_column = [f"`{spec}`"], group.set_index("column")
        for column in shown:
            if column not in by_column.index:
                line += [""] * 3
                continue
            cell = by_column.loc[column]
            line += [_text(cell["printed"], cell["printed_error"]), _text(cell["mean"], cell["standard_error"], cell["n"])]
            difference = "" if math.isnan(cell["difference"]) else f"{round(cell['difference'], 1) + 0:+.1f}".replace("-", "−")
            line.append(cell["ranks"].replace(" ", "\N{NO-BREAK SPACE}") if analogue else difference)
        lines.append(line)
    return _markdown(["activation", *titles], lines)


def _markdown(titles: list[str], lines: Iterable[list[str]], texts: int = 1) -> str:
    """Return a table whose first columns are texts, and whose others are numbers."""
    rows = [titles, [*["---"] * texts, *["---:"] * (len(titles) - texts)], *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def factors() -> str:
    """Return what each point of the MNIST protocol changes at 65k: the mean of the sweeps' protocol minus that without it."""
    sweeps = pd.read_csv(EVIDENCE / "paper" / "mlp-mnist.csv").query("parameters == 65_536").groupby("activation")["value"]
    without = pd.read_csv(EVIDENCE / "mnist-factors.csv")
    specs = list(dict.fromkeys(without["activation"]))
    lines = []
    for factor, meaning in FACTORS.items():
        part = without[without["study"] == factor].groupby("activation")["value"].agg(["mean", "sem", "count"]).reindex(specs)
        difference = 100 * (sweeps.mean() - part["mean"]).reindex(specs)
        error = 100 * np.hypot(sweeps.sem(), part["sem"]).reindex(specs)
        cells = [f"{d:+.2f} ± {e:.2f} ({n:.0f})" for d, e, n in zip(difference, error, part["count"], strict=True)]
        cells = ["" if "nan" in cell else cell.replace("-", "−").replace(" ", "\N{NO-BREAK SPACE}") for cell in cells]
        lines.append([meaning, *cells])
    return _markdown(["difference in percentage points", *(f"`{spec}`" for spec in specs)], lines)


def claims(cells: pd.DataFrame) -> str:
    """Return the table of claims with both verdicts."""
    frame = claim_table(cells)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in frame["ours"].value_counts().items())
    lines = [
        [
            f"{row.quote.replace('|', '¦')} ({row.place})",
            *(row.printed, f"**{row.ours}**" if row.ours in ("confirmed", "contradicted") else row.ours),
            *(row.test, row.n if len(row.n) < 30 else f"{row.n[:27]}…", "" if math.isnan(row.p) else f"{row.p:.1g}"),
        ]
        for row in frame.itertuples()
    ]
    titles = ["claim", "follows from the printed tables", "in our runs", "test", "n", "p"]
    return f"{len(frame)} claims; in our runs: {counts}.\n\n" + _markdown(titles, lines, texts=4)


def glance(cells: pd.DataFrame) -> str:
    """Return one line for each table of results."""
    lines, counts = [], []
    for label in [*tables(), *FIGURES.values()]:
        shown = beside_printed(label, cells) if label in labels() else cells[cells["label"] == label]
        counts += [sum(shown["n"] >= 3)] if label not in SAME_RUNS else []
        lines.append([f"`{label}`", agreement_line(label, cells).partition("; rank")[0].rstrip("."), str(sum(shown["n"] >= 3))])
    total = f"{sum(counts)} cells with n ≥ 3 in {np.count_nonzero(counts)} tables and figures."
    return f"{total}\n\n{_markdown(['table', 'our runs', 'cells with n ≥ 3'], lines, texts=2)}"


def draw(name: str, cells: pd.DataFrame, to: Path = IMAGES) -> None:
    """Draw our mean ± standard error of every activation, one panel per column, with printed means as hollow marks.

    Panels of analogues show ranks.
    """
    import matplotlib.pyplot as plt

    label = label_of(name)
    ours = cells[cells["label"] == label]
    run = [column for column in columns(label) if column in set(ours["column"])] or sorted(set(ours["column"]), key=int)
    printed = {(cell.activation, cell.column): cell.mean for cell in table(label)} if label in labels() else {}
    in_order = dict.fromkeys([*(spec for spec, _ in printed), *ours["activation"]])  # that of the table
    specs = [spec for spec in in_order if spec in set(ours["activation"])][::-1]
    size = (1.8 + max(2.1 * len(run), 3), 1.2 + 0.24 * len(specs))
    figure, panels = plt.subplots(1, len(run), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for column, axes in zip(run, panels[0], strict=True):
        part = ours[ours["column"] == column].set_index("activation")
        part["printed"] = [printed.get((spec, column), math.nan) for spec in part.index]
        analogue = set(part["kind"]) == {"analogue"}
        if analogue:
            part[["mean", "printed"]] = part[["mean", "printed"]].rank(ascending=False)
        errors, label_ours = (None, "ours") if analogue else (part["standard_error"], "ours ± s.e.")
        rows = [specs.index(spec) for spec in part.index]
        axes.errorbar(part["mean"], rows, xerr=errors, fmt="o", color="#2563a8", markersize=4, label=label_ours)
        if part["printed"].notna().any():
            axes.plot(part["printed"], rows, "o", color="#b45309", markerfacecolor="none", markersize=8, label="printed")
        axes.set_xlabel("rank, 1 is best" if analogue else "test accuracy (%)", fontsize=9)
        unit = "layers" if name == "mlp-covtype" else "parameters"
        axes.set_title(f"analogue of {column}" if analogue else f"{column} {unit}".replace("1 layers", "1 layer"), fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    panels[0][0].set_yticks(range(len(specs)), specs, fontsize=8)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    to.mkdir(parents=True, exist_ok=True)
    figure.savefig(to / f"{name}.png", dpi=120, metadata={"Software": None})
    plt.close(figure)


def write_paper() -> None:
    """Write the summaries, the figures and the marked blocks of docs/paper.md."""
    cells = cells_of_runs()
    SUMMARIES.mkdir(exist_ok=True)
    for path in (EVIDENCE / "paper").glob("*.csv"):
        part = cells[cells["label"] == label_of(path.stem)]
        part.to_csv(SUMMARIES / path.name, index=False, float_format="%.8g")
        if path.stem in DRAWN:
            draw(path.stem, cells)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), cells), encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("runs", help="write the runs of a results folder as a CSV")
    runs.add_argument("folder", type=Path, help="a folder that boolit wrote")
    runs.add_argument("name", help="name of the CSV")
    runs.add_argument("--to", type=Path, default=EVIDENCE, help="folder of the CSV (default: docs/evidence)")
    commands.add_parser("paper", help="make summaries, figures and docs/paper.md from docs/evidence/paper")
    options = parser.parse_args()
    if options.command == "paper":
        write_paper()
    else:
        print(f"{options.name}.csv: {write_runs(options.folder, options.name, options.to)} runs")


if __name__ == "__main__":
    main()
