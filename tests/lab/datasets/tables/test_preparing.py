"""From a table to features: what is learnt from which rows, what is refused, and that rows stay whole."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boolit.errors import UserError
from boolit.lab.datasets.tables import PreparedTable, TableSpec, prepare_table, table_digest
from boolit.lab.datasets.tables.prepared import resample_rows, split_rows
from boolit.saved.columns import Column, encode_features, raw_columns

ROWS = 200


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))


def columns(rows: int = ROWS) -> dict[str, list[Any]]:
    drawn = np.random.default_rng(0)
    pick = drawn.integers
    return {
        "id": [f"row-{i}" for i in range(rows)],
        "size": [None if i % 7 == 0 else float(x) for i, x in enumerate(drawn.normal(5, 3, rows))],
        "colour": [None if i % 11 == 0 else "abcdefgh"[min(pick(8), pick(8))] for i in range(rows)],
        "member": [bool(x) for x in pick(2, size=rows)],
        "since": [date(2020, 1, 1) + timedelta(days=int(days)) for days in pick(900, size=rows)],
        "constant": [3] * rows,
        "label": ["no", "yes", "maybe"] * (rows // 3) + ["no"] * (rows % 3),
    }


def made(path: Path, table: dict[str, list[Any]], **options: Any) -> PreparedTable:
    pq.write_table(pa.table(table), path)
    return of(path, **options)


def of(path: Path, **options: Any) -> PreparedTable:
    return prepare_table(TableSpec(str(path), table_digest(path), **{"target": "label", **options}))


def test_columns_by_kind_and_what_is_not_used(tmp_path: Path) -> None:
    table = made(tmp_path / "t.parquet", columns(), levels=4)
    assert {column.name: column.kind for column in table.columns} == {
        "size": "number",
        "colour": "category",
        "member": "flag",
        "since": "date",
    }
    assert set(table.dropped) == {"id", "constant"}
    assert table.classes == ("maybe", "no", "yes")
    colour = next(column for column in table.columns if column.name == "colour")
    assert (len(colour.levels), colour.other, colour.missing) == (4, True, True)
    assert table.rows == {"train": 128, "valid": 32, "test": 40}


def test_statistics_come_from_the_training_rows_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t.parquet", columns())
    x, _ = table.split("train")
    measured = np.array([flag for column in table.columns for flag in column.measured])
    np.testing.assert_allclose(x.numpy()[:, measured].mean(0), 0, atol=1e-6)
    deviations = x.numpy()[:, measured].std(0)
    assert np.all(np.isclose(deviations, 1, atol=1e-5) | (deviations == 0))
    assert abs(table.split("test")[0].numpy()[:, measured].mean(0)).max() > 1e-3
    size = table.columns[0]
    assert size.fill == pytest.approx(np.median(known_sizes(table, "train")))


def known_sizes(table: PreparedTable, name: str) -> Any:
    """The sizes of a split, from its features."""
    x = table.split(name)[0].double().numpy()
    sizes = x[:, 0] * table.scale[0] + table.mean[0]
    return sizes[x[:, 1] == 0]


def test_a_model_sees_other_rows_as_the_training_did(tmp_path: Path) -> None:
    """Two ways to features: pyarrow's in the lab, Python's in the saved model."""
    table = made(tmp_path / "t.parquet", columns(), levels=4)
    raw = encode_features(table.columns, raw_columns(table.columns, columns()))
    expected = ((raw - table.mean) / table.scale).astype(np.float32)
    features = np.concatenate([table.split(name)[0].numpy() for name in ("train", "valid", "test")])
    order = np.lexsort(features.T), np.lexsort(expected.T)
    np.testing.assert_array_equal(features[order[0]], expected[order[1]])


def test_features_stay_with_their_target(tmp_path: Path) -> None:
    values = [float(x) for x in range(0, 400, 2)]
    table = made(tmp_path / "t.parquet", {"x": values, "label": [10 * x + 3 for x in values]})
    assert table.task == "regress"
    for name in ("train", "valid", "test"):
        x, y = table.split(name)
        unscaled = x[:, 0].double() * float(table.scale[0]) + float(table.mean[0])
        np.testing.assert_allclose(y * table.target_scale + table.target_mean, 10 * unscaled + 3, rtol=1e-5)


def test_csv_and_parquet_give_the_same(tmp_path: Path) -> None:
    table = {**columns(), "since": [str(day) for day in columns()["since"]]}
    rows = [list(table), *zip(*table.values(), strict=True)]
    text = "\n".join(",".join("" if value is None else str(value) for value in row) for row in rows)
    (tmp_path / "t.csv").write_text(text)
    one, other = of(tmp_path / "t.csv"), made(tmp_path / "t.parquet", columns())
    assert one.columns == other.columns
    assert bool((one.split("train")[0] == other.split("train")[0]).all())


def test_prepared_once_and_anew_when_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path / "t.parquet", columns())
    changed = made(tmp_path / "t.parquet", {**columns(), "member": [True, False] * (ROWS // 2)})
    assert changed.folder != first.folder
    monkeypatch.setattr("boolit.lab.datasets.tables.prepare.open_table", lambda _: pytest.fail("read again"))
    assert of(tmp_path / "t.parquet").folder == changed.folder
    (changed.folder / "table.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        of(tmp_path / "t.parquet")


def test_nothing_is_left_of_a_preparation_that_fails(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        made(tmp_path / "t.parquet", {**columns(), "label": ["a"] * ROWS})
    assert list((tmp_path / "data" / "tables").iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "options", "named"),
    [
        ({}, {"target": "price"}, "no column 'price'"),
        ({}, {"drop": ("price",)}, "no column 'price'"),
        ({}, {"drop": ("label",)}, "'label' cannot be left out"),
        ({}, {"drop": ("size", "colour", "member", "since")}, "no column to predict 'label' from"),
        ({"label": ["a"] * ROWS}, {}, "the same in every row"),
        ({"label": [None] * ROWS}, {}, "'label' .* is empty"),
        ({"size": [None] * ROWS}, {}, "'size' .* is empty in every row; leave it out with --drop"),
        ({"label": [f"{i}" + "x" for i in range(ROWS)]}, {"task": "regress"}, "holds no numbers"),
        ({"label": columns()["since"]}, {}, "holds dates"),
        ({"size": [[1.0]] * ROWS}, {}, "'size' is of the type list"),
        ({"size": [(-1e308) ** i for i in range(2)] * (ROWS // 2)}, {}, "'size' has numbers too large"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    changes: dict[str, list[Any]], options: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=named):
        made(tmp_path / "t.parquet", {**columns(), **changes}, **options)


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_too_few_rows(rows: int, tmp_path: Path) -> None:
    table = {name: values[:rows] for name, values in columns().items()}
    schema = pa.table(columns()).schema
    pq.write_table(pa.table(table, schema=schema), tmp_path / "t.parquet")
    with pytest.raises(UserError, match=f"has {rows} row"):
        of(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        ([0, 1], None, (0, 1)),
        ([1.0, 2.0, 5.0], None, (1, 2, 5)),
        ([0.5, 1.5], None, ()),
        ([0.5, 1.5], "classify", (0.5, 1.5)),
        ([0, 1], "regress", ()),
        ([True, False], None, (False, True)),
        (["yes", "no"], None, ("no", "yes")),
        (list(range(100)), None, ()),
    ],
)
def test_the_task_is_seen_from_the_target(labels: list[Any], task: Any, classes: tuple[Any, ...], tmp_path: Path) -> None:
    values = (labels * ROWS)[:ROWS]
    table = made(tmp_path / "t.parquet", {**columns(), "label": values}, task=task)
    assert table.classes == classes
    assert [type(label) for label in table.classes] == [type(label) for label in classes]


def test_rows_without_a_target_are_left_out(tmp_path: Path) -> None:
    table = made(tmp_path / "t.parquet", {**columns(), "label": [None, "a", "b", "a"] * (ROWS // 4)})
    assert (sum(table.rows.values()), table.left_out) == (ROWS * 3 // 4, ROWS // 4)


def test_numbers_of_rows_are_not_used(tmp_path: Path) -> None:
    table = made(tmp_path / "t.parquet", {**columns(), "index": list(range(ROWS))})
    assert table.dropped["index"] == "the numbers of the rows"


@given(
    st.lists(st.integers(0, 5), min_size=10, max_size=300),
    st.floats(0.1, 0.5),
    st.floats(0.1, 0.5),
    st.integers(0, 3),
)
def test_splits_share_out_every_row_and_every_class(strata: list[int], test: float, validation: float, seed: int) -> None:
    classes = np.array(strata)
    parts = split_rows(classes, test, validation, seed)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(strata)))
    assert abs(len(parts["test"]) - test * len(strata)) <= 1
    for each in set(strata):
        share = np.mean(classes == each) * len(strata)
        assert abs(np.sum(classes[parts["test"]] == each) - test * share) <= 1 + 1e-9


def test_another_seed_is_another_split() -> None:
    same, again, other = (split_rows(np.zeros(50, np.int64), 0.2, 0.2, seed)["test"].tolist() for seed in (0, 0, 1))
    assert same == again != other


@given(
    st.lists(st.integers(0, 5), min_size=10, max_size=300),
    st.floats(0.1, 0.5),
    st.floats(0.1, 0.5),
    st.integers(1, 20),
)
def test_resampled_splits_are_disjoint_stratified_and_of_one_size(
    strata: list[int], test: float, validation: float, number: int
) -> None:
    classes = np.array(strata)
    parts = resample_rows(classes, test, validation, 0, number)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(strata)))
    first = resample_rows(classes, test, validation, 0, 1)
    assert {name: len(rows) for name, rows in parts.items()} == {name: len(rows) for name, rows in first.items()}
    for each in set(strata):
        share = np.mean(classes == each) * len(strata)
        # One row more or less at either end of a stretch; the line may be cut within the class, which then has two stretches.
        assert abs(np.sum(classes[parts["test"]] == each) - test * share) <= 2 + 1e-9


def test_resampled_splits_are_random_but_fixed() -> None:
    strata = np.repeat([0, 1, 2], [60, 30, 1])
    tests = [resample_rows(strata, 0.2, 0.2, 0, number)["test"].tolist() for number in range(1, 41)]
    assert tests == [resample_rows(strata, 0.2, 0.2, 0, number)["test"].tolist() for number in range(1, 41)]
    assert len({tuple(rows) for rows in tests}) == 40
    # Even the one row of the last class is now tested on and now not; in all 40 or in none is a chance of 0.8⁴⁰ = 1e-4.
    assert 0 < sum(90 in rows for rows in tests) < 40


def test_a_category_has_a_feature_for_each_level_and_one_for_the_others() -> None:
    column = Column("c", "category", levels=("x",), other=True)
    assert column.encode(np.array([0.0, 1.0, np.nan])).tolist() == [[1, 0], [0, 1], [0, 0]]
