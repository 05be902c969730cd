"""Which way a call goes: the instruction set wished for, no kernels by wish, no library, a broken one."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import boolit
from boolit.logic.kernels import library, status

PACKAGE = Path(boolit.__file__).parent
TESTS = Path(__file__).parents[1]

USE_EVERY_GATE = """
import sys, torch, boolit
from boolit.logic.kernels import status
for spec in boolit.nn.known_specs():
    module = boolit.activation(spec)
    x = torch.randn(3, 12, requires_grad=True)
    module(x).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all(), spec
print(boolit.__file__)
print(status().active)
print(status().reason)
"""

USE_EMPTY_TENSORS = """
import torch
from boolit.logic import Program, evaluate
for form in ("il", "ail", "nil", "nail"):
    members = tuple((op, form) for op in ("or", "and", "xnor"))
    for k, strategy, pairing in ((2, "d", "adjacent"), (2, "p", "halves"), (3, "d", "halves"), (3, "p", "adjacent")):
        program = Program(members, strategy, k, pairing)
        for before, groups, after in (((0,), 6, ()), ((4,), 0, ()), ((4,), 6, (0,)), ((0, 2), 6, (3,)), ((2,), 0, (3, 0))):
            x = torch.zeros(*before, groups * k, *after, requires_grad=True)
            out = evaluate(x, program, len(before))
            assert out.shape == (*before, program.out_channels(groups * k), *after), (program, x.shape, out.shape)
            assert evaluate(x.detach(), program, len(before)).shape == out.shape
            out.sum().backward()
            assert x.grad is not None and x.grad.shape == x.shape
print("done")
"""


def run(*arguments: str, **environment: str) -> str:
    """What a new interpreter prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BOOLIT_")}
    done = subprocess.run(
        [sys.executable, *arguments], env=kept | environment, cwd=TESTS.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("level", ["baseline", "x86-64-v3"])
def test_the_level_wished_for_is_loaded(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_INSTRUCTIONS", level)
    shutil.copy(str(status().path), tmp_path)
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))  # a library reads its level when it is loaded
    loaded, verdict = library._load()
    assert loaded is not None
    expected = level if platform.machine() == "x86_64" else "baseline"  # the only one elsewhere
    assert (verdict.active, verdict.instructions, verdict.reason) == (True, expected, f"built and loaded ({expected})")


def test_kernels_turned_off_leave_a_working_library() -> None:
    _, active, reason = run("-c", USE_EVERY_GATE, BOOLIT_KERNELS="0").splitlines()
    assert active == "False"
    assert reason == "turned off by BOOLIT_KERNELS=0; unset it to use them"


def copied_package(folder: Path) -> Path:
    """The package without its compiled library, found before the installed one by PYTHONPATH=folder."""
    shutil.copytree(PACKAGE, folder / "boolit", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.dylib", "__pycache__"))
    return folder / "boolit"


def test_a_package_without_its_library_works_and_says_why(tmp_path: Path) -> None:
    copy = copied_package(tmp_path)
    where, active, reason = run("-c", USE_EVERY_GATE, PYTHONPATH=str(tmp_path)).splitlines()
    assert Path(where).parent == copy
    assert active == "False"
    assert reason.startswith("not built: no C++ compiler was found at installation; install one, then")


def test_a_broken_library_is_named_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = Path(str(status().path)).name
    (tmp_path / name).write_text("not a library")
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    loaded, verdict = library._load()
    assert loaded is None
    assert not verdict.active
    assert verdict.reason.startswith(f"{name} does not load (")
    assert verdict.reason.endswith("; reinstall boolit")


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ABI", library.ABI + 1)
    loaded, verdict = library._load()
    assert loaded is None
    assert not verdict.active
    assert "another version of boolit; reinstall it" in verdict.reason


def test_empty_tensors() -> None:
    # in a process of its own: a kernel that reads where nothing is takes the interpreter with it
    assert run("-c", USE_EMPTY_TENSORS) == "done\n"
