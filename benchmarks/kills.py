"""Kill `boolit run` at random moments and check that the same command finally gives the store of an undisturbed run.

    python benchmarks/kills.py

Three trials: the command killed ten times, workers of ``--workers 2`` killed ten times, and a command with workers killed three
times. A command that takes longer than `LIMIT` seconds counts as hung.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import psutil

from boolit.lab import Store

LIMIT = 600
# Cohorts of one run: a larger one is divided among idle workers, which changes its numbers by rounding.
SETS = ("training.epochs=60", "sweep.rounding=nearest", "sweep.width=[8, 12, 16, 20, 24, 28]", "sweep.depth=2")
STUDY = ("run", "parity", "--seeds", "1", "--json", *(part for each in SETS for part in ("--set", each)))
WORKERS = ("--workers", "2")


def start(folder: Path, *options: str) -> psutil.Popen:
    """Start the command in the background."""
    command = [sys.executable, "-m", "boolit", *STUDY, *options, "--out", str(folder)]
    return psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(folder: Path, *options: str) -> pd.DataFrame:
    """Run the command to its end and return its runs without the columns that depend on the clock."""
    assert start(folder, *options).wait(LIMIT) == 0, "the command failed"
    return Store(folder).frame().drop(columns="seconds")


def kill_commands(folder: Path, times: int, *options: str) -> None:
    """Start the command and kill it after a random time, several times."""
    for _ in range(times):
        command = start(folder, *options)
        time.sleep(random.uniform(1.0, 8.0))
        command.kill()
        command.wait(LIMIT)


def kill_workers(folder: Path, times: int, *options: str) -> None:
    """Kill one worker after another while commands train; a command that gives up for lack of workers is started again."""
    killed, command = 0, start(folder, *options)
    while killed < times:
        time.sleep(random.uniform(1.0, 4.0))
        if command.poll() is not None:
            assert command.returncode, f"the study was finished after {killed} kills; make it longer"
            command = start(folder, *options)
        workers = [child for child in command.children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]
        if workers:
            random.choice(workers).kill()
            killed += 1
    command.wait(LIMIT)


def main() -> None:
    """Run the trials and print what happened."""
    random.seed(0)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        expected = finish(Path(name) / "undisturbed")
        for kill, times, options in ((kill_commands, 10, ()), (kill_workers, 10, WORKERS), (kill_commands, 3, WORKERS)):
            folder, started = Path(name) / f"{kill.__name__}-{times}", time.monotonic()
            kill(folder, times, *options)
            pd.testing.assert_frame_equal(finish(folder, *options), expected, check_exact=True)
            print(f"{folder.name} {options}: {len(expected)} equal runs, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
