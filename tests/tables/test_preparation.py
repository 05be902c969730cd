"""Recognizing columns and encoding them as features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from boolit.errors import UserError
from boolit.sklearn import LogicalMLPClassifier
from boolit.tables import TablePreparation
from boolit.tables.preparation import parse, recognize


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["1", "2.5", "", "NA", "-1e3"], "number", [1, 2.5, np.nan, np.nan, -1000]),
        (["1,5", "2,25", "3", "1.234,5"], "number", [1.5, 2.25, 3, 1234.5]),
        (["$1,200", "$7.50", "$ 1,234,567"], "number", [1200, 7.5, 1234567]),
        (["12,00 €", "7 €"], "number", [12, 7]),
        (["12.5%", "3%"], "number", [12.5, 3]),
        (["yes", "No", ""], "flag", [1, 0, np.nan]),
        (["2024-02-01", "1970-01-02", ""], "date", [19754, 1, np.nan]),
        (["2024-02-01T02:00+02:00", "2024-02-01T00:00Z"], "date", [19754, 19754]),
        (["01/02/2024", "13/02/2024"], "date", [19754, 19766]),
        (["02/01/2024", "02/13/2024"], "date", [19754, 19766]),
        (["01.02.2024 12:00", "01.02.2024 00:00"], "date", [19754.5, 19754]),
        ([True, False], "flag", [1, 0]),
        ([1, 2], "number", [1, 2]),
        ([np.inf, 2.0], "number", [np.nan, 2]),
        (pd.to_datetime(["2024-02-01", None]), "date", [19754, np.nan]),
        (pd.to_datetime(["2024-02-01T02:00+02:00"]), "date", [19754]),
    ],
)
@pytest.mark.parametrize("dtype", [None, object])
def test_values_are_recognized(values: Any, kind: str, expected: list[float], dtype: Any) -> None:
    column = pd.Series(values, dtype=dtype)
    found = recognize("x", column)
    assert found.kind == kind
    np.testing.assert_allclose(parse(column, found.kind, found.format), expected)


def test_a_few_words_among_numbers_are_missing_and_noted() -> None:
    column = pd.Series([*map(str, range(98)), "unknown", "n.a."])
    found = recognize("age", column)
    assert (found.kind, found.lenient) == ("number", True)
    assert "'unknown', 'n.a.'" in found.notes[0]
    assert recognize("code", pd.Series(["1", "2", "x", "y"])).kind == "category"


def test_dates_written_day_first_are_dates_and_noted() -> None:
    """7fbaaa9 made 21 one-hot features of them."""
    preparation = TablePreparation().fit(pd.DataFrame({"when": [f"{1 + i % 28:02d}/0{1 + i % 9}/2024" for i in range(100)]}))
    assert preparation.kinds_ == {"when": "date"}
    assert len(preparation.get_feature_names_out()) == 4
    assert "day/month/year" in preparation.notes_[0]


def test_codes_are_the_same_however_pandas_reads_them() -> None:
    """7fbaaa9 took 1.0 for another category than "1"."""
    preparation = TablePreparation().fit(pd.DataFrame({"code": ["1", "2", "x"]}))
    expected = preparation.transform(pd.DataFrame({"code": ["1", "2"]}))
    for codes in ([1, 2], [1.0, 2.0], ["1.0", " 2"], np.array([1.0, 2.0], dtype=object)):
        np.testing.assert_array_equal(preparation.transform(pd.DataFrame({"code": codes})), expected)
    with_gap = preparation.transform(pd.DataFrame({"code": [1, 2, None]}))
    np.testing.assert_array_equal(with_gap[:2], expected)
    assert not preparation.unknown_categories(pd.DataFrame({"code": [1, 2, None]}))


def test_features(frame: pd.DataFrame) -> None:
    columns = frame[["size", "color", "member", "since"]]
    preparation = TablePreparation().fit(columns)
    assert preparation.kinds_ == {"size": "number", "color": "category", "member": "flag", "since": "date"}
    features, gaps = preparation.transform(columns), preparation.transform_with_gaps(columns)
    missing = (frame["size"] == "").to_numpy()
    size = pd.to_numeric(frame["size"])
    np.testing.assert_allclose(features[:, 0], size.fillna(size.median()))
    assert np.isnan(gaps[missing, 0]).all()
    np.testing.assert_array_equal(np.where(np.isnan(gaps), features, gaps), features)
    names = list(preparation.get_feature_names_out())
    np.testing.assert_array_equal(features[:, names.index("gaps__missingindicator_size")], missing)
    np.testing.assert_array_equal(features[:, names.index("categories__color_(missing)")], frame["color"] == "")
    assert preparation.scaled_.tolist() == [True, False, True, True, True, False] + [False] * (len(names) - 6)
    other = preparation.with_medians(np.arange(preparation.n_numbers_, dtype=float) + 7)
    assert (other.transform(columns)[missing, 0] == 7).all()
    assert (preparation.transform(columns)[missing, 0] == size.median()).all()


def test_infrequent_and_unknown_categories_share_a_feature() -> None:
    colors = pd.DataFrame({"color": ["red"] * 6 + ["blue"] * 5 + ["pink", "teal", "gray"]})
    preparation = TablePreparation(levels=2).fit(colors)
    assert len(preparation.get_feature_names_out()) == 3
    new = pd.DataFrame({"color": ["pink", "violet", "red"]})
    features = preparation.transform(new)
    np.testing.assert_array_equal(features[0], features[1])
    assert preparation.unknown_categories(new) == {"color": (1, ["violet"])}


def test_wrong_tables_are_one_line() -> None:
    preparation = TablePreparation().fit(pd.DataFrame({"size": ["1", "2"], "when": ["2024-01-01", "2024-01-02"]}))
    with pytest.raises(UserError, match="no column 'size'; did you mean 'Size'"):
        preparation.transform(pd.DataFrame({"Size": [1], "when": [""]}))
    with pytest.raises(UserError, match="'size' holds numbers, but 'tall' is not one"):
        preparation.transform(pd.DataFrame({"size": ["tall"], "when": [""]}))
    with pytest.raises(UserError, match="'when' holds dates, but '5' is not one"):
        preparation.transform(pd.DataFrame({"size": [1], "when": [5]}))
    with pytest.raises(UserError, match="not a table with 2 columns"):
        preparation.transform(np.ones((3, 4)))


def test_in_a_pipeline(frame: pd.DataFrame) -> None:
    model = make_pipeline(TablePreparation(), LogicalMLPClassifier(dropout=0, random_state=0))
    columns = frame[["size", "color", "member", "since"]]
    assert model.fit(columns, frame["class"]).score(columns, frame["class"]) > 0.9
