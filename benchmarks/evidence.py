"""Turns the stores of finished studies and comparisons into the small CSVs that docs/choosing.md is built from.

    boolit run parity --out runs/parity
    python benchmarks/evidence.py runs/parity parity    # writes docs/evidence/parity.csv

Several pairs of a folder and a name may be given at once. One row is one run: the study, the activation, the size it counts as
(its budget of parameters, or its own count where the study has no budget), depth, seed, the study's metric, its value with six
digits (empty for a run that diverged; an accuracy is a fraction), and its share of the seconds its cohort took. In a
comparison every run has rows of its own: there ``seed`` is the number of the split, ``tested`` the rows it tested on and
``other`` the rest, which the interval of a difference needs. In a study both are empty: all runs share their test rows.
Trials that only chose a learning rate are left out.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path

from boolit.lab.results.scores import metric_of, size_of

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write
from boolit.lab.datasets import load, source
from boolit.lab.results.store import Store
from boolit.lab.runs import Metric, Record

COLUMNS = ("study", "activation", "parameters", "depth", "seed", "metric", "value", "seconds", "tested", "other")
EVIDENCE = Path(__file__).resolve().parent.parent / "docs" / "evidence"


def write_evidence(folder: Path, path: Path, name: str) -> int:
    """Writes the runs of a store to a CSV, under the name of a study; returns how many there are."""
    with Store(folder, create=False) as store:
        records = [record for record in store.records(history=False) if not record.config.trial and not record.config.search]
    metric = metric_of(records)
    rows = [_row(record, name, metric) for record in sorted(records, key=_order)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return len(rows)


def _order(record: Record) -> tuple[int, int, str, int]:
    return record.config.depth, size_of(record.config), record.config.activation, _repeat(record)


def _repeat(record: Record) -> int:
    return record.config.seed if record.config.split is None else record.config.split


def _row(record: Record, name: str, metric: Metric) -> list[str]:
    value = record.metrics.get(metric.key, math.nan) if record.state == "finished" else math.nan
    config = record.config
    return [
        name,
        config.activation,
        str(size_of(record.config)),
        str(config.depth),
        str(_repeat(record)),
        metric.key,
        f"{value:.6g}" if math.isfinite(value) else "",
        f"{record.seconds:.3g}",
        *_rows_of_split(record),
    ]


def _rows_of_split(record: Record) -> tuple[str, str]:
    """How many rows a run of a comparison tested on, and how many others there were; nothing for a study."""
    if record.config.split is None:
        return "", ""
    splits = load(source(record.config.data)).splits
    tested = len(splits["test"])
    return str(tested), str(sum(map(len, splits.values())) - tested)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="DIR NAME", help="a folder that boolit wrote, and the name of its CSV")
    parser.add_argument("--to", type=Path, default=EVIDENCE, help="the folder of the CSVs; docs/evidence unless given")
    parsed = parser.parse_args(arguments)
    if len(parsed.pairs) % 2:
        parser.error("every DIR needs a NAME: there is an odd number of them")
    for folder, name in zip(parsed.pairs[::2], parsed.pairs[1::2], strict=True):
        path = parsed.to / f"{name}.csv"
        try:
            count = write_evidence(Path(folder), path, name)
        except (UserError, ValueError) as error:
            parser.error(f"{folder}: {error}")
        print(f"{path.name}: {count} runs")


if __name__ == "__main__":
    main()
