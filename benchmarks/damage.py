"""Damage the files that boolit reads at random, and check that each copy is refused in one line or read correctly.

`KINDS` lists the kinds of files: how to write a valid one, how boolit reads it, and what an accepted copy must contain. That is
the content of the whole file if the format has a checksum, and otherwise what an independent reader finds in the damaged bytes.
A damage depends only on --seed, the kind and its number: flipped bits, a cut, a page of zeros, a repeated block, a huge value
in a length field, or a block in another place.

A damage fails if reading raises anything but a one-line error, returns other content, takes more than 30 s or a gibibyte of
additional memory, or ends the process. Every --portion damages run in a process of their own.

    python benchmarks/damage.py --count 200 --jobs 2
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError

from boolit.errors import UserError
from boolit.lab.datasets.table import TableSource, prepare_table
from boolit.lab.results.store import Store
from boolit.lab.runs import Result, RunConfig
from boolit.lab.training import Checkpoint
from boolit.tables import TablePreparation, load, read_table, save

SECONDS, BYTES = 30, 2**30
ROWS = {"a": [1.5, None, -2.0], "b": ["x", "z", "unheard of"]}


class RefusedError(Exception):
    """A reader refused the file with a one-line message."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        file: file name.
        make: writes a valid file.
        read: returns what boolit reads from it.
        expect: returns what must be read from an accepted copy, given its bytes and the content of the whole file. None if
            nothing can tell; then only crashes count.
    """

    file: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    expect: Callable[[bytes, Any], Any] | None = lambda _, whole: whole


def damaged(content: bytes, drawn: random.Random) -> bytes:
    """Damage the content in one of six ways."""
    size, changed = len(content), bytearray(content)
    place, other, length = drawn.randrange(size), drawn.randrange(size), drawn.randint(1, min(4096, max(1, size // 4)))
    way = drawn.choice(("flip", "cut", "zero", "twice", "length", "splice"))
    if way == "flip":
        for _ in range(drawn.choice((1, 1, 1, 2, 8))):
            changed[drawn.randrange(size)] ^= 1 << drawn.randrange(8)
    elif way == "cut":
        del changed[place:]
    elif way == "zero":
        changed[place : place + length] = bytes(len(changed[place : place + length]))
    elif way == "twice":
        changed[place:place] = changed[place : place + length]
    elif way == "length":
        value = drawn.choice((2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 10**12)).to_bytes(8, drawn.choice(("little", "big")))
        value = value[: drawn.choice((4, 8))]
        changed[place : place + len(value)] = value[: len(changed[place : place + len(value)])]
    else:
        block = content[other : other + length]
        changed[place : place + len(block)] = block
    return bytes(changed)


# A model: the zip's checksums cover everything.


def make_model(path: Path) -> None:
    """Write a small model."""
    from sklearn.pipeline import Pipeline

    from boolit.sklearn import LogicalMLPClassifier

    network = LogicalMLPClassifier("or_and_xnor_nail_d", width=(6, 4), max_iter=1, random_state=0)
    table = pd.DataFrame({"a": [0.5, None, 1.0, 2.0] * 5, "b": ["x", "y", "z", "x"] * 5})
    save(Pipeline([("preparation", TablePreparation()), ("network", network)]).fit(table, ["no", "yes"] * 10), path)


def read_model(path: Path) -> Any:
    """Return its predictions."""
    return load(path).predict_proba(pd.DataFrame(ROWS)).tolist()


# Tables: Parquet has checksums of its own; of a CSV, what Python's own reader finds must be found.


def make_csv(path: Path) -> None:
    """Write numbers, quoted texts and empty cells."""
    drawn = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "size", "color", "class"])
        for place in range(120):
            color = drawn.choice(["red", "pale, blue", 'say "so"', ""])
            writer.writerow([place, f"{drawn.random():.6f}", color, drawn.choice("ab")])


def make_parquet(path: Path) -> None:
    """Write the same table as Parquet."""
    make_csv(path.with_suffix(".csv"))
    read_table(path.with_suffix(".csv")).to_parquet(path)


def read(path: Path) -> Any:
    """Return names and cells; the table is also prepared as for a network."""
    frame = read_table(path)
    with suppress(UserError):  # cells that no network can learn from
        prepare_table(TableSource(path=str(path), target=str(frame.columns[-1])))
    return {str(name): [str(value) for value in values] for name, values in frame.items()}


def expect_csv(content: bytes, whole: Any) -> Any:
    """Return the same cells by the standard library."""
    del whole
    rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")) if row]
    names = [name.strip() for name in rows[0]]
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(names)}


# A store: every row has a checksum.


def make_store(path: Path) -> None:
    """Write a store with sixty runs."""
    config = RunConfig.model_validate(
        {
            "data": {"name": "parity"},
            "model": {"name": "mlp"},
            "training": {"epochs": 20, "batch": 32},
            "inputs": (4,),
            "outputs": 1,
            "activation": "relu",
            "widths": (4, 2),
            "parameters": 36,
            "metric": {"name": "accuracy"},
        }
    )
    results = []
    for run in config.with_seeds(range(60)):
        curves = {name: [(run.seed + epoch) / 7 for epoch in range(20)] for name in ("train_loss", "test_accuracy")}
        results.append(Result(run, "finished", {"test_accuracy": run.seed / 70}, curves, 1.5, {"threads": 1}))
    with Store(path.parent) as store:
        store.record(results)


def read_store(path: Path) -> Any:
    """Return all results."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    with Store(path.parent) as store:
        return store.results()


# A checkpoint: a damaged one is refused by safetensors, and its training starts again.


def make_checkpoint(path: Path) -> None:
    """Write a checkpoint of a few tensors."""
    Checkpoint(path.parent).save({"weights": torch.arange(600.0).reshape(20, 30), "step": torch.tensor(7)})


def read_checkpoint(path: Path) -> Any:
    """Return the shapes of its tensors; their values have no checksum."""
    try:
        state = Checkpoint(path.parent).load() or {}
    except SafetensorError as error:
        raise RefusedError(str(error)) from error
    return {name: tuple(values.shape) for name, values in state.items()}


KINDS: dict[str, Kind] = {
    "store": Kind("runs.sqlite", make_store, read_store),
    "checkpoint": Kind("training.safetensors", make_checkpoint, read_checkpoint, None),
    "model": Kind("model.skops", make_model, read_model),
    "parquet": Kind("table.parquet", make_parquet, read, None),
    "csv": Kind("table.csv", make_csv, read, expect_csv),
}


def limit_memory(extra: int) -> None:
    """Limit the memory that this process may take in addition, on Linux."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError, ValueError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(kind: Kind, path: Path, whole: Any) -> str:
    """Return ``refused``, ``read``, or what is wrong."""
    try:
        with _alarm():
            content = kind.read(path)
    except (UserError, RefusedError) as error:
        if "\n" in str(error):
            return f"more than one line: {error}"
        memory = "allocate" in str(error) or ("MemoryError" in str(error) and kind.expect is not None)
        return f"more than a gibibyte: {error}" if memory else "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if kind.expect is None:
        return "read"
    try:
        expected = kind.expect(path.read_bytes(), whole)
    except Exception as error:
        return f"read what another reader refuses ({type(error).__name__}: {error})"
    return "read" if repr(content) == repr(expected) else "read something else"


def try_damages(name: str, seed: int, first: int, count: int, folder: Path) -> list[tuple[int, str, float]]:
    """Return number, outcome and seconds of consecutive damages, tried in this process."""
    kind = KINDS[name]
    path = folder / kind.file
    kind.make(path)
    content, whole = path.read_bytes(), kind.read(path)
    if kind.expect is not None and repr(kind.expect(content, whole)) != repr(whole):
        raise RuntimeError(f"the whole file of {name} is not read as it should be")
    outcomes = []
    for number in range(first, first + count):
        path.write_bytes(damaged(content, random.Random(f"{seed} {name} {number}")))
        start = time.perf_counter()
        outcomes.append((number, outcome(kind, path, whole), time.perf_counter() - start))
    return outcomes


def _child(name: str, seed: int, first: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try_damages(name, seed, 0, 0, Path(folder))  # imports what reading needs, which the damage must not be charged for
        limit_memory(BYTES)
        print(json.dumps(try_damages(name, seed, first, count, Path(folder))))


def _portion(name: str, seed: int, first: int, count: int) -> list[tuple[int, str, float]]:
    command = [sys.executable, __file__, "--child", name, str(seed), str(first), str(count)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=alone, timeout=60 + SECONDS * count, check=False)
    if done.returncode:
        return [(first, f"the process ended with {done.returncode}: {done.stderr[-300:]}", 0.0)] * count
    return [(number, end, seconds) for number, end, seconds in json.loads(done.stdout)]


def main() -> int:
    """Print a line for each kind and return 1 if a damage failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--portion", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(options.child[0], *map(int, options.child[1:]))
        return 0
    failures = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        firsts = range(0, options.count, options.portion)
        work = {
            name: [pool.submit(_portion, name, options.seed, at, min(options.portion, options.count - at)) for at in firsts]
            for name in options.kinds
        }
        for name, portions in work.items():
            outcomes = [entry for portion in portions for entry in portion.result()]
            ends = Counter(end for _, end, _ in outcomes)
            wrong = [(number, end) for number, end, _ in outcomes if end not in ("refused", "read")]
            figures = f"refused {ends['refused']:4}  read {ends['read']:3}  wrong {len(wrong):3}"
            print(f"{name:20} {figures}  slowest {max(seconds for _, _, seconds in outcomes):6.2f} s", flush=True)
            for number, end in wrong[:10]:
                print(f"  {name} {number}: {end[:300]}")
            failures += len(wrong)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
