"""Several connections on one store, in any order of claims, records, releases, closings and deaths, against a plain model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run

RUNS = [Run.from_dict({"seed": seed}) for seed in range(6)]
KEYS = [run.key for run in RUNS]
DEAD = "nobody"
WHO = st.integers(0, 2)
SOME = st.lists(st.integers(0, len(RUNS) - 1), max_size=6)


class Interleavings(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.stores = [Store(self.folder) for _ in range(3)]
        self.kept: dict[str, float] = {}
        self.claims: dict[str, int | str] = {}

    @rule(who=WHO, some=SOME)
    def claim(self, who: int, some: list[int]) -> None:
        self.claims = {key: holder for key, holder in self.claims.items() if holder != DEAD}
        free = [key for key in dict.fromkeys(KEYS[i] for i in some) if key not in self.kept and key not in self.claims]
        assert self.stores[who].claim([KEYS[i] for i in some], f"owner {who}") == free
        self.claims |= dict.fromkeys(free, who)

    @rule(who=WHO, some=SOME)
    def release(self, who: int, some: list[int]) -> None:
        self.stores[who].release([KEYS[i] for i in some], f"owner {who}")
        self.claims = {key: holder for key, holder in self.claims.items() if holder != who or KEYS.index(key) not in some}

    @rule(who=WHO, some=SOME, value=st.floats(0, 1))
    def record(self, who: int, some: list[int], value: float) -> None:
        records = [Record(KEYS[i], RUNS[i].config, "finished", {"m": value}, {"m": [value] * i}) for i in some]
        self.stores[who].record(records)
        for i in some:
            self.kept.setdefault(KEYS[i], value)
            self.claims.pop(KEYS[i], None)

    @rule(who=WHO)
    def close_and_open(self, who: int) -> None:
        self.stores[who].close()
        self.stores[who] = Store(self.folder)
        self.claims = {key: holder for key, holder in self.claims.items() if holder != who}

    @rule(who=WHO)
    def die(self, who: int) -> None:
        """As kill -9 leaves it: the claims stay, and their process is no more."""
        statement = "UPDATE claims SET pid = ? WHERE owner = ?"
        self.stores[who]._connection.execute(statement, (2**22 + 1, f"owner {who}"))
        self.claims = {key: DEAD if holder == who else holder for key, holder in self.claims.items()}

    @invariant()
    def everybody_sees_the_same(self) -> None:
        for store in self.stores:
            found = {record.key: record for record in store.records()}
            assert {key: record.metrics["m"] for key, record in found.items()} == self.kept
            assert all(record.history == {"m": [self.kept[key]] * KEYS.index(key)} for key, record in found.items())

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
