"""A program of its own that reads a MATLAB file from standard input and prints records as JSON: see `_mat.records`.

scipy's reader can end its process at a damaged file, and takes the memory a file states. This imports nothing of boolit: so it
starts quickly.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import zlib
from typing import Any

COMPRESSED = 15  # what a MATLAB file calls a compressed variable
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


def verify_compressed(content: bytes) -> None:
    """Compares what is compressed with the checksums zlib keeps in it, which scipy does not read."""
    order, place = "<" if content[126:128] == b"IM" else ">", 128
    while place + 8 <= len(content):
        kind, size = struct.unpack(f"{order}II", content[place : place + 8])
        place += 8 + size
        if kind == COMPRESSED:
            stream, left = zlib.decompressobj(), content[place - size : place]
            while not stream.eof:
                piece = stream.decompress(left, 2**20)
                if not piece and not stream.eof:
                    raise ValueError("it is cut off")
                left = stream.unconsumed_tail


def read_records(content: bytes, name: str, fields: list[str]) -> list[list[Any]]:
    """The fields of every record of a variable."""
    from scipy.io import loadmat

    verify_compressed(content)
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
