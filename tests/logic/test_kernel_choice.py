"""Which kernels are loaded: the instruction set asked for, none if turned off, missing or broken."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import boolit
from boolit.logic import cpu

PACKAGE = Path(boolit.__file__).parent
USE_EVERY_GATE = """
import sys, torch, boolit
from boolit.logic.cpu import status
for spec in boolit.nn.known_specs():
    x = torch.randn(3, 12, requires_grad=True)
    boolit.activation(spec)(x).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all(), spec
print(boolit.__file__, status().active, status().reason, sep="\\n")
"""


def run(**environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BOOLIT_")}
    command = [sys.executable, "-c", USE_EVERY_GATE]
    return subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()


@pytest.mark.skipif(cpu.LIBRARY is None, reason=cpu.status().reason)
@pytest.mark.parametrize("level", ["baseline", "x86-64-v3"])
def test_the_instruction_set_asked_for_is_loaded(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_INSTRUCTIONS", level)
    expected = level if platform.machine() == "x86_64" else "baseline"
    library, status = cpu._load()
    assert library is not None
    assert (status.active, status.instructions, status.reason) == (True, expected, f"built and loaded ({expected})")


def test_kernels_turned_off_leave_a_working_library() -> None:
    assert run(BOOLIT_KERNELS="0")[1:] == ["False", "turned off by BOOLIT_KERNELS=0; unset it to use them"]


def test_a_package_without_its_libraries_works_and_says_why(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "boolit", ignore=shutil.ignore_patterns("*.so", "__pycache__", "lab"))
    file, active, reason = run(PYTHONPATH=str(tmp_path))
    assert Path(file).parent == tmp_path / "boolit"
    assert active == "False"
    assert reason.startswith("not built: no C++ compiler was found at installation; install one, then")


@pytest.mark.skipif(cpu.LIBRARY is None, reason=cpu.status().reason)
def test_a_broken_library_is_named_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / Path(str(cpu.status().path)).name
    path.write_text("not a library")
    library, status = cpu._open(path, "baseline")
    assert library is None
    assert status.reason.startswith(f"{path.name} does not load (")
    monkeypatch.setattr(cpu, "ABI", cpu.ABI + 1)
    library, status = cpu._load()
    assert library is None
    assert "another version of boolit; reinstall it" in status.reason
