"""Measure the report of a study with very many runs, which are generated instead of trained.

    python benchmarks/many_runs.py [RUNS]

The bar for 100,000 runs: at most 15 seconds and 1 GB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from boolit.lab.results.store import Store
from boolit.lab.runs import Result
from boolit.lab.studies import load_study, plan, save

EPOCHS = 30
SECONDS, BYTES = 15, 10**9
REPORT = """
import resource, sys, time
from boolit.lab.reports.report import write_report
started = time.monotonic()
report = write_report(sys.argv[1])
print(report.verdict)
print(time.monotonic() - started, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def generate(folder: Path, runs: int) -> int:
    """Fill a results folder with made-up results of the study parity."""
    activations = len(plan(load_study("parity"), seeds=1).runs)
    planned = plan(load_study("parity"), seeds=runs // activations)
    chance = np.random.default_rng(0)
    with Store(folder) as store, store.writing():
        save(planned, folder)
        for place, cohort in enumerate(planned.cohorts):
            results = []
            for config in cohort.runs:
                level = min(1.0, 0.6 + 0.004 * place + 0.1 * chance.random())
                curve = (0.5 + (level - 0.5) * np.linspace(0, 1, EPOCHS)).tolist()
                metrics = {"train_loss": 1 - level, "test_loss": 1 - level, "test_accuracy": level}
                history = {"train_loss": [1 - value for value in curve], "test_accuracy": curve}
                results.append(Result(config, "finished", metrics, history, 0.1, {"device": "none"}))
            store.record(results)
    return len(planned.runs)


def main() -> int:
    """Print seconds and memory of the report; return 1 if it misses a bar."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as name:
        started = time.monotonic()
        count = generate(Path(name), runs)
        print(f"{count:,} runs generated in {time.monotonic() - started:.0f} s")
        done = subprocess.run([sys.executable, "-c", REPORT, name], capture_output=True, text=True, check=True)
        page = (Path(name) / "report" / "report.html").stat().st_size
    *_, numbers = done.stdout.splitlines()
    seconds, memory = map(float, numbers.split())
    print(f"report: {seconds:.1f} s (bar: {SECONDS}), {memory / 1e9:.2f} GB (bar: {BYTES / 1e9:g}), page {page / 1e6:.1f} MB")
    print(f"generator: {1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9:.2f} GB")
    return int(seconds > SECONDS or memory > BYTES)


if __name__ == "__main__":
    sys.exit(main())
