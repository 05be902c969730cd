"""MATLAB files, in which some datasets keep arrays and annotations."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from boolit.lab.common.errors import UserError

SECONDS = 30
BYTES = 2**30
CHILD = Path(__file__).with_name("mat_child.py")


def read_variable(content: bytes, name: str, file: str) -> Any:
    """A variable in a MATLAB file (version 5): an array; ``file`` is for what is said of a bad one.

    Only of content that was compared with its published hash: at another file scipy can end the process.
    """
    from scipy.io import loadmat

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
    command = [sys.executable, str(CHILD), str(BYTES), name, *fields]
    alone = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # every thread takes address space
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=SECONDS, env=alone, check=False)
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
