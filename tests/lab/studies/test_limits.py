"""Whatever a study or ``--set`` holds, it is planned or refused in one sentence."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.studies import load_study, plan
from boolit.lab.studies.files import StudyFile

PARITY = load_study("parity")
TABLES = {
    "data": "name inputs train test seed",
    "model": "name dropout normalisation",
    "sweep": "activation seeds params width depth rounding",
    "training": "optimiser learning_rate schedule epochs batch beta1 eps peak warmup loss patience augmentation clip ema",
    "metric": "name split solved goal",
    "hparams": "relu relu.learning_rate",
    "x": "y",
}
KEYS = [*TABLES, "title", "paper", "keep_weights", "profiles"]
KEYS += [f"{table}.{name}" for table, names in TABLES.items() for name in names.split()]
NUMBERS = [0, -1, 1, 2, 10**9, 10**20, -(10**30), True, False, 0.0, -0.0, 0.5, 1e308, 5e-324, float("nan"), float("inf")]
WORDS = ["", "relu", "find", "xor", "parity", "mlp", "cnn", "test", "valid", "accuracy", "loss", "../x"]
TEXTS = ["é\u202e", "a\0b", "\udcff", "x" * 20_000]
LISTS = [[], [[]], {}, [[], []], [[1], 2], ["relu", "relu"]]
ODD = [*NUMBERS, *WORDS, *TEXTS, *LISTS]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FAST = settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def attempt(tables: dict[str, Any], sets: list[str] | None = None) -> None:
    """Plans a study, or is told why not; any other exception fails the test."""
    with suppress(UserError):
        plan(StudyFile("fuzz", PARITY.path, PARITY.text, tables), seeds=1, sets=sets or [])


@FAST
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=3))
def test_any_table_is_planned_or_refused(changes: list[tuple[str, Any]]) -> None:
    tables = copy.deepcopy(dict(PARITY.tables))
    for key, value in changes:
        *path, last = key.split(".")
        table = tables
        for part in path:
            inner = table.get(part)
            table[part] = table = inner if isinstance(inner, dict) else {}
        table[last] = value
    attempt({name: value for name, value in tables.items() if name != "profiles"})


@FAST
@given(st.sampled_from(KEYS) | st.text(max_size=8), VALUES.map(repr) | st.text(max_size=12))
def test_any_assignment_is_planned_or_refused(key: str, value: str) -> None:
    attempt(dict(PARITY.tables), [f"{key}={value}"])
