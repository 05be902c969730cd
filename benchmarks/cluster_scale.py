"""What 1,000 workers and a million runs cost: the scheduler by tasks that sleep, store and report by runs that are made up.

    python benchmarks/cluster_scale.py tasks --tasks 10000 --workers 50
    python benchmarks/cluster_scale.py store --runs 1000000 --out /tmp/million
    python benchmarks/cluster_scale.py report --out /tmp/million
    python benchmarks/cluster_scale.py speedup

Nothing decides here: figures are printed, and those of docs/cluster.md are from such a run.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from boolit.lab import Record, Store, execute_plan, load_study, plan
from boolit.lab.studies import Cohort, Plan

MIB = 2**20
RECORDED_AT_ONCE = 1000
SAMPLES = 2048  # of the parity study's test split


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
    """Records as many runs, a thousand at a time; then reports them."""
    recording, started = 0.0, time.monotonic()
    with Store(out) as store:
        made_up = make_runs(train_parity(), runs)
        for first in range(0, runs, RECORDED_AT_ONCE):
            records = [next(made_up) for _ in range(min(RECORDED_AT_ONCE, runs - first))]
            before = time.monotonic()
            store.record(records)
            recording += time.monotonic() - before
    print(f"{runs:,} runs made up and recorded in {time.monotonic() - started:.0f} s, recording alone {recording:.0f} s")
    measure_report(out)


def train_parity() -> list[Record]:
    """Real runs of the parity study."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        execute_plan(plan(load_study("parity"), seeds=40, sets=["keep_weights=false"]), store, progress=False)
        return store.records()


def make_runs(real: list[Record], runs: int) -> Iterator[Record]:
    """Runs with the curves of real ones, each changed so that no two are equal, in float32 as the trainer records them."""
    drawn = np.random.default_rng(0)
    activations: dict[str, list[Record]] = {}
    for record in real:
        activations.setdefault(record.config.activation, []).append(record)
    groups = list(activations.values())
    for number in range(runs):
        own, seed = groups[number % len(groups)], number // len(groups)
        origin = own[seed % len(own)]
        curves = {name: change_curve(np.array(curve), name, drawn) for name, curve in origin.history.items()}
        metrics = {**origin.metrics, **{name: curve[-1] for name, curve in curves.items()}}
        config = origin.config.replace(seed=seed)
        yield Record(config.key, config, origin.state, metrics, curves, origin.environment, origin.seconds)


def change_curve(curve: np.ndarray[Any, Any], name: str, drawn: np.random.Generator) -> list[float]:
    """A share by a few of its samples, a loss by a hundredth."""
    if name.endswith("accuracy"):
        changed = np.clip(curve + drawn.integers(-4, 5, len(curve)) / SAMPLES, 0, 1)
    else:
        changed = curve * np.exp(0.01 * drawn.standard_normal(len(curve)))
    values: list[float] = changed.astype(np.float32).astype(float).tolist()
    return values


def measure_report(out: Path) -> None:
    """The commands that read a store, each in a process of its own; then the report's stages, in another."""
    size = sum(file.stat().st_size for file in out.glob("store.sqlite*"))
    print(f"the store has {size / 1e9:.2f} GB")
    commands = [["report", str(out)], *(["export", str(out), "--format", kind] for kind in ("csv", "json", "parquet"))]
    for arguments in commands:
        started = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", "boolit", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = f"{time.monotonic() - started:.1f} s ({used.ru_utime + used.ru_stime:.1f} s of a processor)"
        print(f"boolit {' '.join(arguments)}: exit code {child.returncode}, {seconds}, {used.ru_maxrss / 1024:,.0f} MiB")
    page = out / "report" / "report.html"
    print(f"the page has {page.stat().st_size / 1e6:.1f} MB")
    subprocess.run([sys.executable, __file__, "stages", "--out", str(out)], check=True)


def measure_stages(out: Path) -> None:
    """The stages of the report's command, in this process."""
    started = time.monotonic()
    import boolit.cli._report
    from boolit.lab.reports import page, sections

    print(f"  {time.monotonic() - started:6.1f} s  importing")
    for module, name, words in (
        (sections.Store, "__init__", "opening the store, with SQLite's check of its pages"),
        (sections.Store, "table", "reading and verifying every run"),
        (sections, "study_section", "scores, tests, tables and charts, with the curves of those"),
        (page, "save_figures", "figures, with their curves"),
        (page, "html_page", "the page"),
    ):
        setattr(module, name, timed(getattr(module, name), words))
    boolit.cli._report.report([out])


def timed(function: Callable[..., Any], words: str) -> Callable[..., Any]:
    """The function, which prints how long it took."""

    def call(*arguments: Any, **options: Any) -> Any:
        started = time.monotonic()
        found = function(*arguments, **options)
        print(f"  {time.monotonic() - started:6.1f} s  {words}; {memory()}")
        return found

    return call


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
    parser.add_argument("what", choices=("tasks", "store", "report", "stages", "speedup"))
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
        measure_report(given.out)
    elif given.what == "stages":
        measure_stages(given.out)
    else:
        measure_speedup()


if __name__ == "__main__":
    main()
