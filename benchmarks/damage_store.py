"""Random damage to a store and to a checkpoint: is every one noticed, in one line, and is nothing wrong believed?

    python benchmarks/damage_store.py [TIMES]

Each kind of damage is a function of a file's bytes and a random generator. After each, the store is opened and read, or the
training is gone on with; the answer has to be what was there before (the damage hit nothing that is read) or one sentence.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sqlite3
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from boolit.cli._app import run as command
from boolit.errors import UserError
from boolit.lab.results.database import FILE
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run, RunConfig
from boolit.lab.training import Checkpoint, CohortResult, Job, StackedTraining, train

PAGE = 4096
Damage = Callable[[bytes, random.Random], bytes]


def _flip(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def _flip_header(content: bytes, chance: random.Random) -> bytes:
    return _flip(content[:100], chance) + content[100:]


def _overwrite(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + chance.randbytes(min(chance.randrange(1, 64), len(content) - place)) + content[place + 64 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _zero_page(content: bytes, chance: random.Random) -> bytes:
    start = PAGE * chance.randrange(max(1, len(content) // PAGE))
    return content[:start] + bytes(min(PAGE, len(content) - start)) + content[start + PAGE :]


def _swap_pages(content: bytes, chance: random.Random) -> bytes:
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    one, other = chance.randrange(len(pages)), chance.randrange(len(pages))
    pages[one], pages[other] = pages[other], pages[one]
    return b"".join(pages)


BYTES: tuple[Damage, ...] = (_flip, _flip_header, _overwrite, _cut, _zero_page, _swap_pages)
STATEMENTS = (
    "DROP TABLE {table}",
    "ALTER TABLE runs DROP COLUMN recorded",
    "ALTER TABLE claims ADD COLUMN more",
    "UPDATE runs SET metrics = replace(metrics, '0.', '0.9') WHERE key = '{key}'",
    "UPDATE runs SET config = '{{}}' WHERE key = '{key}'",
    "UPDATE runs SET seconds = seconds + 1 WHERE key = '{key}'",
    "UPDATE runs SET state = 'diverged' WHERE key = '{key}'",
    "UPDATE runs SET environment = 99 WHERE key = '{key}'",
    "UPDATE runs SET metrics = x'00ff' WHERE key = '{key}'",
    "UPDATE environments SET json = '{{}}'",
    "UPDATE history SET epochs = ?1 WHERE key = '{key}'",
    "DELETE FROM history WHERE key = '{key}'",
    "UPDATE history SET key = 'nobody' WHERE key = '{key}'",
    "PRAGMA user_version = {number}",
    "PRAGMA application_id = {number}",
)
BOMB = zlib.compress(zlib.compress(bytes(2**28), 9), 9)


def records(count: int) -> list[Record]:
    """Some runs with curves."""
    found = []
    for seed in range(count):
        run = Run.from_dict({"study": "parity", "activation": "relu", "parameters": 36, "seed": seed})
        curves = {name: [(seed + epoch) / 7 for epoch in range(20)] for name in ("loss", "test_accuracy")}
        found.append(Record(run.key, run.config, "finished", {"test_accuracy": seed / 70}, curves, {"threads": 1}, 1.5))
    return found


def damage_store(folder: Path, kept: list[Record], chance: random.Random) -> str:
    """Damages a fresh store once, by bytes or by SQL; says how it was answered."""
    with Store(folder) as store:
        store.record(kept)
    path = folder / FILE
    if chance.random() < 0.7:
        path.write_bytes(chance.choice(BYTES)(path.read_bytes(), chance))
    else:
        _damage_by_sql(path, kept, chance)
    if not path.stat().st_size:
        path.unlink()
    answer = _read(folder, kept)
    code, said = _command(["export", str(folder), "--to", str(folder / "runs.csv")])
    return f"export: {said}" if (code, answer) not in ((0, "unharmed"), (2, "refused")) else answer


def _damage_by_sql(path: Path, kept: list[Record], chance: random.Random) -> None:
    statement = chance.choice(STATEMENTS)
    filled = statement.format(
        table=chance.choice(("environments", "runs", "history", "claims")),
        key=chance.choice(kept).key,
        number=chance.choice((0, 1, 3, -1, 2**31 - 1)),
    )
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(filled, (BOMB,) if "?1" in filled else ())


def _read(folder: Path, kept: list[Record]) -> str:
    try:
        with Store(folder, create=False) as store:
            found = store.records()
    except UserError as error:
        return "refused" if "\n" not in str(error) else f"many lines: {error}"
    except Exception as error:  # the very thing that is looked for
        return f"traceback: {error!r}"
    return "unharmed" if sorted(found, key=str) == sorted(kept, key=str) else "WRONG RESULT"


def _command(arguments: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return command(arguments), said.getvalue()
    except Exception as error:
        return -1, f"traceback: {error!r}"


def job() -> Job:
    """A training of a few steps."""
    config = RunConfig.from_dict(
        {
            "data": {"name": "parity", "train": 64, "test": 16},
            "model": {"name": "mlp"},
            "width": [4],
            "activation": "or_ail",
            "training": {"epochs": 2, "batch": 32},
        }
    )
    return Job.of([config.replace(seed=seed) for seed in range(2)])


def damage_checkpoint(folder: Path, content: bytes, before: bytes, expected: CohortResult, chance: random.Random) -> str:
    """Damages one of the two files, or both; says how it was answered."""
    said: list[str] = []
    checkpoint = Checkpoint(folder, warn=said.append)
    which = chance.randrange(3)
    damage = chance.choice((*BYTES, _edit))
    checkpoint.path.write_bytes(damage(content, chance) if which != 1 else content)
    checkpoint.previous.write_bytes(damage(before, chance) if which != 0 else before)
    harmed = checkpoint.path.read_bytes() != content
    try:
        finished = train(job(), checkpoint)
    except Exception as error:
        return f"traceback: {error!r}"
    if finished is None or _numbers(finished) != _numbers(expected):
        return "WRONG RESULT"
    if harmed != bool(said):
        return "WRONG: damage without a word" if harmed else "WRONG: a word without damage"
    return "refused" if harmed else "unharmed"


def _edit(content: bytes, chance: random.Random) -> bytes:
    return content.replace(b'\\"epoch\\": 0', b'\\"epoch\\": %d' % chance.randrange(1, 9))


def _numbers(finished: CohortResult) -> str:
    return json.dumps([[outcome.metrics, outcome.history] for outcome in finished.outcomes], sort_keys=True)


def stores(times: int, seed: int = 0) -> Counter[str]:
    """How so many damages of a store were answered."""
    kept, found = records(60), Counter[str]()
    for number in range(times):
        with tempfile.TemporaryDirectory() as folder:
            found[damage_store(Path(folder), kept, random.Random(f"store {seed} {number}"))] += 1
    return found


def checkpoints(times: int, seed: int = 0) -> Counter[str]:
    """How so many damages of a checkpoint were answered."""
    expected = train(job())
    assert expected is not None
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder), steps=1)
        assert train(job(), checkpoint, _stop_after_two) is None
        content, before = checkpoint.path.read_bytes(), checkpoint.previous.read_bytes()
        chances = (random.Random(f"checkpoint {seed} {number}") for number in range(times))
        return Counter(damage_checkpoint(Path(folder), content, before, expected, chance) for chance in chances)


def _stop_after_two(training: StackedTraining) -> bool:
    return training.steps < 2


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    bad = False
    for name, kind in (("store", stores), ("checkpoint", checkpoints)):
        started = time.monotonic()
        answers = kind(asked)
        bad |= not answers.keys() <= {"refused", "unharmed"}
        print(f"{name}: {dict(answers)} in {time.monotonic() - started:.0f} s")
    sys.exit(bad)
