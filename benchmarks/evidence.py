"""Write the runs of a results folder as a CSV of docs/evidence.

    boolit run parity --out results/parity
    python benchmarks/evidence.py results/parity parity    # writes docs/evidence/parity.csv

One row per run: an accuracy is a fraction, and the value of a diverged run is empty. In a comparison, ``seed`` is the number of
the split.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from boolit.lab.results.store import Store
from boolit.lab.studies import load

EVIDENCE = Path(__file__).resolve().parent.parent / "docs" / "evidence"


def write_evidence(folder: Path, name: str, to: Path = EVIDENCE) -> int:
    """Write the runs that are not trials of a search. Return their number."""
    metric = load(folder).plan.study.metric.key
    with Store(folder) as store:
        frame = store.frame()
    frame = frame[~frame["trial"] & frame["stage"].isna()]
    columns = {
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
    frame.assign(**columns)[list(columns)].sort_values(order).to_csv(to / f"{name}.csv", index=False)
    return len(frame)


def main() -> None:
    """Write the CSV that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder that boolit wrote")
    parser.add_argument("name", help="name of the CSV")
    parser.add_argument("--to", type=Path, default=EVIDENCE, help="folder of the CSV (default: docs/evidence)")
    options = parser.parse_args()
    print(f"{options.name}.csv: {write_evidence(options.folder, options.name, options.to)} runs")


if __name__ == "__main__":
    main()
