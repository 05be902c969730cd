"""Count the files of the lab, and the functions in them, that a command passes through.

    python benchmarks/trace.py run parity --seeds 2 --set training.epochs=2 --out /tmp/parity

Modules that are only imported, and functions that run while a module is imported, do not count.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

from boolit import cli, lab

FOLDER = str(Path(lab.__file__).parent)


def trace(arguments: list[str]) -> dict[str, set[str]]:
    """Run a command and return the names of the functions that were called, by file."""
    entered: dict[str, set[str]] = defaultdict(set)
    importing = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            importing += 1 if event == "call" else -1
        in_lab = code.co_filename.startswith(FOLDER) and code.co_filename.endswith(".py")
        if event == "call" and in_lab and not importing and code.co_flags & CO_OPTIMIZED:  # a function, not a class body
            entered[code.co_filename.removeprefix(FOLDER)[1:]].add(f"{code.co_name}:{code.co_firstlineno}")

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        cli.main(arguments)
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return dict(entered)


if __name__ == "__main__":
    found = trace(sys.argv[1:])
    for file, functions in sorted(found.items()):
        print(f"{len(functions):4} {file}")
    print(f"{sum(map(len, found.values()))} functions in {len(found)} files of boolit.lab")
