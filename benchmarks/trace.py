"""Count the files of the lab, and the functions in them, that a command passes through.

    python benchmarks/trace.py run parity --seeds 2 --set training.epochs=2 --out /tmp/parity

Modules that are only imported do not count.
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

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(FOLDER) and code.co_flags & CO_OPTIMIZED:  # not a module or class
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
