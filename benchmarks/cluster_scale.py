"""What 1,000 workers and a million runs cost: the scheduler by tasks that sleep, store and report by runs that are made up.

    python benchmarks/cluster_scale.py tasks --tasks 10000 --workers 50
    python benchmarks/cluster_scale.py store --runs 1000000 --out /tmp/million
    python benchmarks/cluster_scale.py speedup

Nothing decides here: figures are printed, and those of docs/cluster.md are from such a run.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from boolit.lab import Record, Store, load_study, plan, report_study
from boolit.lab.studies import Cohort, Plan

MIB = 2**20


def memory() -> str:
    """The most this process has taken so far."""
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB:,.0f} MiB"


def sleep_instead(_configs: object, keys: list[str], _options: object) -> object:
    """A task as long as a short cohort, with an answer as large as that of one run."""
    from distributed import get_worker

    from boolit.lab.execute import TrainedRun
    from boolit.lab.execute.worker import TaskResult

    time.sleep(0.05)
    curves = {name: [0.1 * epoch for epoch in range(100)] for name in ("train_loss", "test_loss", "test_accuracy")}
    return TaskResult(get_worker().address, [TrainedRun("finished", {"test_accuracy": 0.9}, curves, None) for _ in keys], 0.05)


def measure_tasks(tasks: int, workers: int) -> None:
    """Cohorts of one run through the lab's own path: claim, submit, gather, record."""
    from distributed import Client, LocalCluster

    from boolit.lab.execute import execute
    from boolit.lab.execute.cluster import Cluster

    planned = plan(load_study("parity"), seeds=-(-tasks // 8), sets=["keep_weights=false"])
    runs = planned.runs[:tasks]
    single = Plan(planned.name, planned.study, tuple(Cohort((run,)) for run in runs))
    # Workers in threads of one other process would share its loop; processes of one thread are what a cluster has.
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", memory_limit=0
        ) as local,
        Client(local, set_as_default=False) as client,
        Store(Path(folder)) as store,
        patch("boolit.lab.execute.dispatch.train_cohort", sleep_instead),
    ):
        started = time.monotonic()
        summary = execute(single, store, progress=False, cluster=Cluster(client, "the benchmark"))
        seconds = time.monotonic() - started
    print(f"{summary.trained:,} tasks of 50 ms on {workers} workers: {seconds:.1f} s, {1e3 * seconds / tasks:.2f} ms a task")
    print(f"memory of client, scheduler and workers in one process: {memory()}")


def measure_store(runs: int, out: Path) -> None:
    """A study of as many runs, with curves of 100 epochs, recorded a thousand at a time; and its report in another process."""
    sets = ["keep_weights=false", "sweep.seeds=1"]
    configs = [run.config for run in plan(load_study("parity"), sets=sets).runs]
    drawn, started = random.Random(0), time.monotonic()
    environment = {"boolit": "0", "torch": "0"}
    with Store(out) as store:
        for first in range(0, runs, 1000):
            records = []
            for number in range(first, min(runs, first + 1000)):
                config = configs[number % len(configs)].replace(seed=number // len(configs))
                curve = [drawn.random() for _ in range(20)] * 5
                metrics = {name: drawn.random() for name in ("test_accuracy", "test_loss", "train_loss", "train_accuracy")}
                history = dict.fromkeys(("test_accuracy", "test_loss", "train_loss", "train_accuracy"), curve)
                records.append(Record(config.key, config, "finished", metrics, history, environment, 1.0))
            store.record(records)
    size = sum(file.stat().st_size for file in out.glob("store.sqlite*"))
    print(f"{runs:,} runs recorded in {time.monotonic() - started:.0f} s; the store has {size / 2**30:.2f} GiB")
    measured = [sys.executable, __file__, "report", "--runs", str(runs), "--out", str(out)]
    subprocess.run(measured, check=True)


def measure_report(runs: int, out: Path) -> None:
    """The report of all runs."""
    started = time.monotonic()
    with Store(out) as store:
        opened = time.monotonic()
        records = store.records(history=False)
        read = time.monotonic()
        print(
            f"opened in {opened - started:.1f} s, {len(records):,} records without curves in {read - opened:.1f} s, {memory()}"
        )
        del records
        with patch("boolit.lab.studies.planner.MOST_RUNS", runs):
            planned = plan(load_study("parity"), seeds=-(-runs // 8), sets=["keep_weights=false"])
        print(f"planned in {time.monotonic() - read:.1f} s, {memory()}")
        started = time.monotonic()
        report = report_study(planned, store)
    print(f"report in {time.monotonic() - started:.1f} s, {memory()}: {report.verdict}")


def measure_speedup() -> None:
    """A study of many cohorts on one worker and on two, each with one thread."""
    from boolit.lab.execute import execute
    from boolit.lab.execute.cluster import Cluster

    planned = plan(load_study("parity"), seeds=8, sets=["training.epochs=30"])
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with Cluster.open(workers=1) as one, Cluster.open(workers=2) as two:
        for repeat in range(3):
            for workers, cluster in ((1, one), (2, two)):
                with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
                    seconds[workers].append(execute(planned, store, progress=False, cluster=cluster).seconds)
                    print(f"repeat {repeat + 1}: {workers} workers, {seconds[workers][-1]:.1f} s")
    print(f"two workers take {min(seconds[2]) / min(seconds[1]):.2f} of the time of one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tasks", "store", "report", "speedup"))
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("results/million"))
    given = parser.parse_args()
    if given.what == "tasks":
        measure_tasks(given.tasks, given.workers)
    elif given.what == "store":
        measure_store(given.runs, given.out)
    elif given.what == "report":
        measure_report(given.runs, given.out)
    else:
        measure_speedup()


if __name__ == "__main__":
    main()
