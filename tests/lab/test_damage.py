"""Some of the damages of benchmarks/damage.py, which tries 200 of every kind of file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "damage.py"
_spec = importlib.util.spec_from_file_location("damage", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
damage = importlib.util.module_from_spec(_spec)
sys.modules["damage"] = damage  # where dataclasses look for it
_spec.loader.exec_module(damage)

SLOW = {"mat without a hash": 4}  # each starts a process


@pytest.mark.parametrize("name", damage.KINDS)
def test_a_damaged_file_is_refused_in_a_line_or_read_as_what_it_is(name: str, tmp_path: Path) -> None:
    found = damage.try_damages(name, 1, 0, SLOW.get(name, 20), tmp_path)
    assert [entry for entry in found if entry[1] not in ("refused", "read")] == []
