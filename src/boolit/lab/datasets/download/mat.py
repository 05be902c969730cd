"""MATLAB files, in which some datasets keep arrays and annotations.

scipy's reader can end its process at a damaged file, and takes the memory a file states. So files that were not verified are
read by another process, which runs this file as a program: at its top it imports nothing of boolit, so that it starts quickly.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

SECONDS = 30
BYTES = 2**30
CHILD = Path(__file__)
COMPRESSED = 15  # what a MATLAB file calls a compressed variable
LONGEST_ANSWER = 2**26  # characters


def read_variable(content: bytes, name: str, file: str) -> Any:
    """A variable in a MATLAB file (version 5): an array; ``file`` names a bad one in the error.

    Only for content that was compared with its published hash: at another file scipy can end the process.
    """
    from scipy.io import loadmat

    from boolit.errors import UserError

    try:
        found = loadmat(io.BytesIO(content), variable_names=[name])
    except Exception as error:  # a file may be of a version that scipy does not read
        raise UserError(f"{file} is no whole MATLAB file ({type(error).__name__}: {error}); fetch it again") from None
    if name not in found:
        raise UserError(f"{file} has no variable {name}; fetch it again")
    return found[name]


def read_records(content: bytes, name: str, fields: tuple[str, ...], file: str) -> list[list[str | int]]:
    """Some fields, each one text or whole number, of every record of a variable in a MATLAB file that may come from anywhere.

    Another process reads it, with at most 30 s and a gibibyte: where it crashes, this one says so.
    """
    from boolit.errors import UserError

    command = [sys.executable, str(CHILD), str(BYTES), name, *fields]
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # every thread takes address space
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=SECONDS, env=one_thread, check=False)
        answer: dict[str, Any] = (
            json.loads(done.stdout) if done.returncode == 0 else {"error": f"its reader ended with {done.returncode}"}
        )
    except subprocess.TimeoutExpired:
        answer = {"error": f"it takes more than {SECONDS} s"}
    except ValueError:
        answer = {"error": "its reader gave no answer"}
    if "error" in answer:
        reason = " ".join(str(answer["error"]).split())
        raise UserError(f"{file} is no whole MATLAB file of {name} ({reason}); put the published one there")
    found: list[list[str | int]] = answer["records"]
    if not all(isinstance(value, str | int) for record in found for value in record):
        raise UserError(f"{file} has records of {name} that are no texts and whole numbers; put the published one there")
    return found


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


def _verify_compressed(content: bytes) -> None:
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


def _main() -> None:
    """Reads a file from standard input, and prints ``{"records": […]}`` or ``{"error": …}``."""
    del sys.path[0]  # this folder, whose files have names of their own
    from scipy.io import loadmat  # before the limit, which is for the file alone

    extra, name, *fields = sys.argv[1:]
    limit_memory(int(extra))
    try:
        content = sys.stdin.buffer.read()
        _verify_compressed(content)
        found = loadmat(io.BytesIO(content), variable_names=[name])
        if name not in found:
            raise KeyError(f"it has no variable {name}")
        records = [[record[field].item() for field in fields] for record in found[name].ravel()]
        answer = json.dumps({"records": records})
        if len(answer) > LONGEST_ANSWER:
            raise ValueError("it holds more than any that was published")
    except Exception as error:  # a damaged file may fail with any exception
        answer = json.dumps({"error": f"{type(error).__name__}: {error}"[:200]})
    print(answer)


if __name__ == "__main__":
    _main()
