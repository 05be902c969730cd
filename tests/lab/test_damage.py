"""Some of the damages of benchmarks/damage.py, which tries 200 of every kind of file."""

from __future__ import annotations

import importlib.util
import random
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


def test_a_wrong_reader_is_found_out(tmp_path: Path) -> None:
    def believe(path: Path) -> bytes:
        return path.read_bytes()

    def fail(path: Path) -> bytes:
        return path.read_bytes()[:1000].decode()

    def make(path: Path) -> None:
        path.write_bytes(b"abc" * 1000)

    for read, end in ((believe, "read something else"), (fail, "UnicodeDecodeError")):
        damage.KINDS["wrong"] = damage.Kind("wrong.bin", make, read)
        try:
            found = damage.try_damages("wrong", 0, 0, 20, tmp_path)
        finally:
            del damage.KINDS["wrong"]
        assert any(entry[1].startswith(end) for entry in found)


def test_the_same_damage_comes_from_the_same_seed() -> None:
    content = bytes(range(256)) * 4
    ways = {damage.damaged(content, random.Random(number)) for number in range(50)}
    assert ways == {damage.damaged(content, random.Random(number)) for number in range(50)}
    assert len(ways) > 40
