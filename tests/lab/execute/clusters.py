"""A Dask cluster as its users start it: a scheduler and workers, each a process of its own, over TCP on 127.0.0.1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from distributed import Client

from boolit.lab.runs import Record

SECONDS = 120.0  # until a process that does not answer is a failure; the machine may be busy


def wait_until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, f"{what}: not within {SECONDS:.0f} s"
        time.sleep(0.02)


class Processes:
    """A scheduler and named workers in a folder, ended with the ``with``."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        # Functions of this file are run there.
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        known = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        self.environment = {**os.environ, **known, **(environment or {})}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.file = folder / "scheduler.json"

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()

    def start_scheduler(self, *options: str) -> str:
        """Its address."""
        self._start("scheduler", ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file), *options])
        wait_until(self._address, "the scheduler")
        return self._address()

    def start_worker(
        self,
        number: int,
        threads: int = 1,
        more: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        nanny: bool = False,
    ) -> subprocess.Popen[bytes]:
        """A worker; without a nanny, it is gone when it is killed."""
        arguments = ["--scheduler-file", str(self.file), "--name", str(number), "--nthreads", str(threads)]
        arguments += ["--local-directory", str(self.folder), *options, *([] if nanny else ["--no-nanny"])]
        return self._start("worker", arguments, more)

    def _address(self) -> str:
        try:
            return str(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError):
            return ""

    def _start(self, kind: str, arguments: Sequence[str], more: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments, "--no-dashboard"]
        log = self.folder / f"{kind}-{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env={**self.environment, **(more or {})}, stdout=output, stderr=output)
        self.processes.append(process)
        return process


def start_command(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The command ``boolit`` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "boolit", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """As the system does when memory runs out."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def contents(records: list[Record]) -> dict[str, object]:
    """All that must be the same, wherever a run was trained; nan equals itself here."""
    return {
        r.key: (r.state, repr(sorted(r.metrics.items())), repr(sorted(r.history.items())), dict(r.environment)) for r in records
    }


def left_behind(processes: Processes) -> list[str]:
    """The tasks that the scheduler still knows."""
    with Client(processes._address(), set_as_default=False) as client:
        tasks: list[str] = client.run_on_scheduler(known_tasks)
    return tasks


def known_tasks(dask_scheduler: Any) -> list[str]:
    return list(map(str, dask_scheduler.tasks))


def count_tasks(dask_worker: Any) -> int:
    """Those that a worker has or is still running."""
    return len(dask_worker.state.executing) + len(dask_worker.state.tasks)
