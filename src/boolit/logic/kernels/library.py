"""Finds and loads the compiled gates, or says in a line why they are not there."""

from __future__ import annotations

import ctypes
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch  # noqa: F401  (first, so that the library finds torch's OpenMP threads already loaded and shares them)

ABI = 1
MOST_GATES = 16


class GateStruct(ctypes.Structure):
    """BoolitGate of gates.cpp."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("flips", ctypes.c_int32),
        ("scale", ctypes.c_double),
        ("shift", ctypes.c_double),
        ("start", ctypes.c_int64),
        ("size", ctypes.c_int64),
    ]


class PlanStruct(ctypes.Structure):
    """BoolitPlan of gates.cpp."""

    _fields_ = [
        ("type", ctypes.c_int32),
        ("halves", ctypes.c_int32),
        ("duplicate", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("outer", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("inner", ctypes.c_int64),
        ("gates", GateStruct * MOST_GATES),
    ]


@dataclass(frozen=True)
class KernelStatus:
    """Whether the kernels run, and why or why not."""

    active: bool
    reason: str
    path: str | None = None
    instructions: str | None = None
    threads: int | None = None
    abi: int | None = None


def _load() -> tuple[ctypes.CDLL | None, KernelStatus]:
    if os.environ.get("BOOLIT_KERNELS", "1") == "0":
        return None, KernelStatus(False, "turned off by BOOLIT_KERNELS=0; unset it to use them")
    path = Path(__file__).with_name(f"_gates{sysconfig.get_config_var('EXT_SUFFIX')}")
    if not path.exists():
        return None, KernelStatus(
            False,
            "not built: no C++ compiler was found at installation; install one, then `pip install --force-reinstall boolit`",
        )
    try:
        library = ctypes.CDLL(str(path))
        abi = int(library.boolit_abi())
    except (OSError, AttributeError) as error:
        return None, KernelStatus(False, f"{path.name} does not load ({error}); reinstall boolit", str(path))
    if abi != ABI:
        return None, KernelStatus(False, f"{path.name} is of another version of boolit; reinstall it", str(path), abi=abi)
    _declare(library)
    instructions = library.boolit_instructions().decode()
    return library, KernelStatus(
        True, f"built and loaded ({instructions})", str(path), instructions, library.boolit_threads(), abi
    )


def _declare(library: ctypes.CDLL) -> None:
    pointer = plan = ctypes.c_void_p
    library.boolit_instructions.restype = ctypes.c_char_p
    library.boolit_kept_bytes.argtypes, library.boolit_kept_bytes.restype = [plan], ctypes.c_int64
    library.boolit_forward.argtypes, library.boolit_forward.restype = [plan, pointer, pointer, pointer], None
    library.boolit_backward.argtypes, library.boolit_backward.restype = [plan, pointer, pointer, pointer, pointer], None


LIBRARY, STATUS = _load()


def status() -> KernelStatus:
    """Whether the compiled kernels are in use, and the reason."""
    return STATUS
