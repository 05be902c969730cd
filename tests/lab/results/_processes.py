"""Run by test_store_processes: forks writers on one store and prints, as JSON, what they said before they ended.

    python _processes.py kill FOLDER TIMES     a writer that is killed at random moments, TIMES times
    python _processes.py race FOLDER WRITERS   writers that share one list of runs and one folder that is not there yet

It imports the package once and forks, so that ten deaths do not cost ten imports.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run

EPOCHS = 20
COHORT = 4
MANY = 4000


def expected(seed: int) -> Record:
    run = Run.from_dict({"activation": "relu", "seed": seed})
    curves = {name: [seed + epoch / 7 for epoch in range(EPOCHS)] for name in ("loss", "accuracy")}
    return Record(run.key, run.config, "finished", {"accuracy": seed / 3}, curves, {"writer": 1}, 0.5)


ALL = {record.key: record for record in map(expected, range(MANY))}


def write_for_ever(folder: Path, said: int) -> None:
    """Claims and records whole cohorts, and says which runs it has been told are safe."""
    with Store(folder) as store:
        done = store.finished()
        keys = [key for key in ALL if key not in done]
        for start in range(0, len(keys), COHORT):
            mine = store.claim(keys[start : start + COHORT], "writer")
            store.record([ALL[key] for key in mine])
            os.write(said, "".join(f"{key}\n" for key in mine).encode())


def write_once(folder: Path, said: int) -> None:
    """Claims runs one by one in a random order, says which it got, and records them."""
    records = [expected(seed) for seed in range(60)]
    random.Random(os.getpid()).shuffle(records)
    with Store(folder) as store:
        for record in records:
            if store.claim([record.key], f"writer {os.getpid()}"):
                os.write(said, f"{record.key}\n".encode())
                time.sleep(0.003)  # a very short training, in which the others have their turn
                store.record([record])


def fork(work, folder: Path, start: int | None = None) -> tuple[int, int]:
    """A child at work, and where to hear it; it begins when ``start``, if given, has a byte for it."""
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        if start is not None:
            os.read(start, 1)
        os.close(heard)
        work(folder, said)
        os._exit(0)
    os.close(said)
    return child, heard


def listen(heard: int, before: bytes = b"") -> list[str]:
    with os.fdopen(heard, "rb") as stream:
        lines = (before + stream.read()).decode().split("\n")
    return lines[:-1]  # what follows the last newline was cut short by the kill


def kill(folder: Path, times: int) -> list[list[str]]:
    """Every other writer is killed after its first word, the rest whenever it happens: while opening the store, too."""
    said = []
    for turn in range(times):
        child, heard = fork(write_for_ever, folder)
        before = os.read(heard, 2**16) if turn % 2 else b""
        time.sleep(random.uniform(0.0005, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said.append(listen(heard, before))
    return said


def race(folder: Path, writers: int) -> list[list[str]]:
    start, go = os.pipe()
    children = [fork(write_once, folder, start) for _ in range(writers)]
    os.write(go, b"!" * writers)
    said = [listen(heard) for _, heard in children]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in children]
    assert codes == [0] * writers, codes
    return said


if __name__ == "__main__":
    work = {"kill": kill, "race": race}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]), int(sys.argv[3]))))
