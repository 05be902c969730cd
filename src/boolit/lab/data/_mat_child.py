"""A program of its own that reads a MATLAB file from standard input and prints records as JSON: see `_mat.records`.

scipy's reader can end its process at a damaged file, and takes the memory a file states. This imports nothing of boolit: so it
starts quickly.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

LONGEST_ANSWER = 2**26  # characters


def limit_memory(extra: int) -> None:
    """Lets this process take so many bytes besides what it has, where the system can."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError, ValueError):  # not on Linux: the time is limited all the same
        return
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, used + extra))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def read_records(content: bytes, name: str, fields: list[str]) -> list[list[Any]]:
    """The fields of every record of a variable."""
    from scipy.io import loadmat

    found = loadmat(io.BytesIO(content), variable_names=[name])
    if name not in found:
        raise KeyError(f"it has no variable {name}")
    return [[record[field].item() for field in fields] for record in found[name].ravel()]


def main() -> None:
    """Prints ``{"records": […]}`` or ``{"error": …}``."""
    del sys.path[0]  # this folder, whose files have names of their own
    import scipy.io  # before the limit, which is for the file alone  # noqa: F401

    extra, name, *fields = sys.argv[1:]
    limit_memory(int(extra))
    try:
        answer = json.dumps({"records": read_records(sys.stdin.buffer.read(), name, fields)})
        if len(answer) > LONGEST_ANSWER:
            raise ValueError("it holds more than any that was published")
    except Exception as error:  # a damaged file may fail with any exception
        answer = json.dumps({"error": f"{type(error).__name__}: {error}"[:200]})
    print(answer)


if __name__ == "__main__":
    main()
