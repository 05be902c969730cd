"""Train the paper's tables one after the other and keep every run as a row of a CSV.

    GOMP_SPINCOUNT=1000 python benchmarks/reproduce.py  # all jobs, in order; stop and start it as you like
    python benchmarks/reproduce.py --only mlp-mnist      # one table
    python benchmarks/reproduce.py --list                # jobs, their runs and how many are done

After each cohort its runs are appended to ``docs/evidence/paper/TABLE.csv``. A run whose key is in that file is not trained
again. The jobs are ordered by what they add per hour on two cores.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from boolit.errors import UserError
from boolit.lab.datasets.iraven.rules import LAYOUTS
from boolit.lab.execute import execute
from boolit.lab.results.store import Store
from boolit.lab.runs import Result
from boolit.lab.studies import Cohort, Plan, load_study, plan

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence" / "paper"
COLUMNS = ["key", "study", "profile", "activation", "parameters", "depth", "seed", "metric", "value", "seconds", "commit"]
# Metrics of the same runs that are columns of tab:sran, tab:tmn-og and tab:tmnx.
METRIC_COLUMNS = {f"test_accuracy_{name}" for name in LAYOUTS} | {"test_auc", "test_auc2", "test_auc3"}
TWELVE = [
    *("relu", "silu", "tanh", "max", "max_min_d", "signed_geomean", "or_ail", "xnor_ail", "xnor_nail"),
    *("or_and_ail_d", "or_xnor_ail_d", "or_and_xnor_ail_d"),
]
FIRST_CNN = ["or_ail", "silu", "or_and_ail_d", "or_xnor_ail_d"]


@dataclass(frozen=True)
class Job:
    """Runs of one study for one table of the paper. The profile ``analogue`` has smaller networks and data than the paper."""

    table: str
    study: str
    profile: str
    seeds: int
    sets: tuple[str, ...] = ()

    def plan(self) -> Plan:
        """Return the plan of the job."""
        return plan(load_study(self.study), self.profile, seeds=self.seeds, sets=self.sets)


def _set(key: str, value: object) -> str:
    return f"{key}={value!r}"


ONE_SIZE = (_set("sweep.params", [100_000]), _set("sweep.activation", TWELVE))
SMALLEST = _set("sweep.params", [16_384])
JOBS = [
    Job("mlp-mnist", "mnist-mlp", "paper-16k", 20),
    Job("mlp-mnist", "mnist-mlp", "paper", 20, (_set("sweep.params", [65_536]),)),
    Job("parity", "parity", "paper", 40),
    Job("xor", "xor", "paper", 40),
    Job("jsb", "chorales", "paper", 10),
    Job("mlp-mnist", "mnist-mlp", "paper", 20, (_set("sweep.params", [262_144]),)),
    Job("parity8", "parity8", "headline", 10),
    Job("parity8", "parity8", "paper", 10),
    Job("parity8", "parity8", "headline", 3, (_set("sweep.activation", ["relu"]), _set("sweep.width", 256))),
    Job("transfer-extra", "transfer-cifar10", "analogue", 3),
    Job("transfer-head-512", "transfer-cifar10", "analogue-512", 3),
    Job("tmn-og", "composed-tmn", "analogue", 3),
    Job("tmnx", "composed-tmnx", "analogue", 3),
    Job("cnn-mnist", "mnist-cnn", "paper", 4, (SMALLEST, _set("sweep.activation", FIRST_CNN))),
    Job("cnn-mnist", "mnist-cnn", "paper", 4, (SMALLEST,)),
    Job("sran", "iraven", "analogue", 3),
    Job("resnet50-cifar10", "cifar10", "analogue", 3),
    *(Job("mlp-covtype", f"covertype-{depth}", "paper", 3, ONE_SIZE) for depth in (1, 2, 3)),
    Job("transfer-extra", "transfer-cifar10", "paper", 3),
    Job("transfer-head-512", "transfer-cifar10", "paper-512", 3),
    Job("cnn-mnist", "mnist-cnn", "paper", 5, (SMALLEST,)),
    Job("cnn-mnist", "mnist-cnn", "paper-63k", 5),
    Job("mlp-mnist", "mnist-mlp", "paper", 3, (_set("sweep.params", [4_194_304]),)),
]


def known_keys(path: Path) -> set[str]:
    """Return the keys of the runs in a CSV of evidence."""
    if not path.exists():
        return set()
    with path.open(newline="", encoding="utf-8") as file:
        return {row["key"] for row in csv.DictReader(file)}


def rows(result: Result, commit: str) -> list[list[str]]:
    """Return one row per metric that is a column of a table: accuracies are fractions, values of diverged runs are empty."""
    config = result.config
    metrics = [config.metric.key, *(name for name in result.metrics if name in METRIC_COLUMNS and name != config.metric.key)]
    return [
        [
            *(config.key, config.study, config.profile or "", config.activation, str(config.size), str(config.depth)),
            *(str(config.seed), metric, f"{value:.6g}" if math.isfinite(value) else "", f"{result.seconds:.3g}", commit),
        ]
        for metric in metrics
        for value in [result.metrics.get(metric, math.nan)]
    ]


def append(path: Path, lines: Iterable[Sequence[str]]) -> None:
    """Append rows to a CSV, which is created with a header if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS] if is_new else [])
        writer.writerows(lines)


def run(job: Job, evidence: Path, folder: Path, commit: str) -> bool:
    """Train the runs of a job that have no row yet. Return False if interrupted."""
    planned, path = job.plan(), evidence / f"{job.table}.csv"
    with Store(folder / job.table) as store:
        for cohort in planned.cohorts:
            missing = [run for run in cohort.runs if run.key not in known_keys(path)]
            if not missing:
                continue
            part = Plan(planned.name, planned.profile, planned.study, (Cohort(tuple(missing)),))
            if not execute(part, store).complete:
                return False
            results = store.results([run.key for run in missing], history=False)
            append(path, [row for result in results for row in rows(result, commit)])
    return True


def main() -> None:
    """Run the jobs of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TABLE", help="only the jobs of one table, such as mlp-mnist")
    parser.add_argument("--list", action="store_true", help="print the jobs and how many of their runs are done")
    parser.add_argument("--evidence", type=Path, default=EVIDENCE, help="folder of the CSVs (default: docs/evidence/paper)")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "reproduce", help="folder of stores and checkpoints")
    options = parser.parse_args()
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    for job in JOBS:
        if options.only not in (None, job.table):
            continue
        try:
            if options.list:
                keys = {run.key for run in job.plan().runs}
                done = len(keys & known_keys(options.evidence / f"{job.table}.csv"))
                print(f"{job.table:18} {job.study:18} {job.profile:10} {done:5,} of {len(keys):5,} runs")
            elif not run(job, options.evidence, options.results, commit):
                break
        except UserError as error:
            print(f"{job.table} ({job.study}): {error}")


if __name__ == "__main__":
    main()
