"""From values to features: every kind of column, however its values come."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boolit.saved import SavedModelError
from boolit.saved.columns import Column, date_parts, encode_features, raw_columns, raw_values

COLUMNS = (
    Column("age", "number", fill=40.0, missing=True),
    Column("member", "flag", fill=1.0),
    Column("since", "date", fill=0.0),
    Column("colour", "category", levels=("red", "blue"), other=True, missing=True),
)
TABLE: dict[str, list[Any]] = {
    "age": [21, None, 30.5],
    "member": [True, False, None],
    "since": ["2024-02-29", "1970-01-01T12:00:00", None],
    "colour": ["blue", "pink", None],
}
FEATURES = [
    [21.0, 0, 1, 19782, 2, 3, 0, 0, 1, 0, 0],
    [40.0, 1, 0, 0.5, 1, 3, 12, 0, 0, 1, 0],
    [30.5, 0, 1, 0, 1, 3, 0, 0, 0, 0, 1],
]


def features(table: Any) -> list[list[float]]:
    return encode_features(COLUMNS, raw_columns(COLUMNS, table)).tolist()


def test_a_dict_of_columns() -> None:
    assert features(TABLE) == FEATURES
    assert len(FEATURES[0]) == sum(len(column.features) for column in COLUMNS) == sum(len(c.measured) for c in COLUMNS)


def test_a_pyarrow_table_and_a_batch_of_it() -> None:
    since = [datetime(2024, 2, 29), datetime(1970, 1, 1, 12), None]
    table = pa.table({**TABLE, "since": since})
    assert features(table) == FEATURES
    assert features(table.to_batches()[0]) == FEATURES


def test_a_plain_array_has_the_columns_in_their_order() -> None:
    assert features(np.array(list(TABLE.values()), dtype=object).T) == FEATURES


def test_texts_are_read_as_what_the_column_holds() -> None:
    texts = {
        "age": ["21", "NA", " 30.5"],
        "member": ["Yes", "no", "?"],
        "since": ["2024-02-29", "1970-01-01 12:00", ""],
        "colour": [" blue", "pink", ""],
    }
    assert features(texts) == FEATURES


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_date_parts_are_those_of_the_standard_library(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, second=0)
    days = (moment - datetime(1970, 1, 1)) / timedelta(days=1)
    [[whole, month, weekday, _]] = date_parts(np.array([days])).tolist()
    assert (whole, month, weekday) == (days, moment.month, moment.weekday())


@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1))
def test_features_are_never_missing(values: list[float | None]) -> None:
    column = Column("x", "number", fill=1.5, missing=True)
    [*rows] = column.encode(raw_values(column, np.array(values, dtype=object))).tolist()
    for value, (number, missing) in zip(values, rows, strict=True):
        known = value is not None and math.isfinite(value)
        assert (number, missing) == ((value, 0) if known else (1.5, 1))


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({**TABLE, "age": [1, 2, "old"]}, "'age'"),
        ({**TABLE, "member": [1, 0, "perhaps"]}, "'perhaps'"),
        ({**TABLE, "member": [1, 0, 3]}, "3 is neither"),
        ({**TABLE, "since": ["2024-02-30"] * 3}, "'since'"),
        ({name: values for name, values in TABLE.items() if name != "colour"}, "'colour'"),
        ({**TABLE, "age": [1]}, r"\[1, 3\]"),
        ({**TABLE, "age": 1}, "one value per row"),
        (np.zeros((3, 2)), r"\(3, 2\)"),
        (7, "int"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_name(table: Any, named: str) -> None:
    with pytest.raises(SavedModelError, match=named):
        features(table)
