"""Files of tables: what is read from each kind, and the one sentence for each that is not readable."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boolit.errors import UserError
from boolit.lab.datasets.tables import open_table
from boolit.lab.datasets.tables.profile import ColumnProfile


def read(path: Path) -> dict[str, list[object]]:
    table = open_table(path)
    return pa.Table.from_batches(table.batches(table.names)).to_pydict()


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1.5,x\n2,y\n",
        "\ufeffa,b\n1.5,x\n2,y\n",
        "a, b \r\n1.5,x\r\n2,y\r\n",
        "a;b\n1,5;x\n2;y\n",
        "a\tb\n1.5\tx\n2\ty\n",
        "a|b\n1.5|x\n\n2|y",
        '"a","b"\n"1.5","x"\n2,"y"\n',
    ],
)
def test_separators_and_marks(content: str, tmp_path: Path) -> None:
    assert read(write(tmp_path / "t.csv", content)) == {"a": ["1.5", "2"], "b": ["x", "y"]}


def test_newlines_and_separators_within_quotes(tmp_path: Path) -> None:
    content = 'a,"b\nb"\n"one\ntwo, three","say ""so"""\n'
    assert read(write(tmp_path / "t.csv", content)) == {"a": ["one\ntwo, three"], "b\nb": ['say "so"']}


def test_compressed_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,2\n"))) == {"a": ["1"], "b": ["2"]}


def test_a_tsv_may_hold_commas(tmp_path: Path) -> None:
    assert read(write(tmp_path / "t.tsv", "a,b,c\n1,2,3\n")) == {"a,b,c": ["1,2,3"]}


def test_parquet_and_npz_keep_their_types(tmp_path: Path) -> None:
    columns = {"a": [1, 2], "b": ["x", None]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet") == columns
    np.savez(tmp_path / "t.npz", X=np.array([[1.5, 2], [3, 4]]), y=np.array([True, False]))
    assert read(tmp_path / "t.npz") == {"X0": [1.5, 3.0], "X1": [2.0, 4.0], "y": [True, False]}


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("t.csv", "a,b\n1,2\n3\n", "line 3 of .* has 1 fields instead of 2"),
        ("t.csv", 'a,b\n"1\n1",2\n3,4,5\n', "line 4 of .* has 3 fields instead of 2"),
        ("t.csv", "a,b\n1,2\n3,\xff\n".encode("latin-1"), "line 3 of .* is not UTF-8"),
        ("t.csv", b"PK\x03\x04\x00\x00\x00binary", "binary file"),
        ("t.csv", "", "empty"),
        ("t.csv", "a,b,a\n1,2,3\n", "two columns named 'a'"),
        ("t.csv", "a, a\n1,2\n", "two columns named 'a'"),
        ("t.csv", "1,2\n3,4\n", "holds numbers, not the names"),
        ("t.csv.gz", "a,b\n1,2\n", "cannot be read"),
        ("t.parquet", "a,b\n1,2\n", "no readable Parquet"),
        ("t.npz", "a,b\n1,2\n", "no readable .npz"),
        ("t.xlsx", "a,b\n1,2\n", "convert it"),
        ("t", "a,b\n1,2\n", "convert it"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name: str, content: str | bytes, named: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(UserError, match=named) as caught:
        read(path)
    assert name in str(caught.value)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no table"):
        open_table(tmp_path / "t.csv")
    with pytest.raises(UserError, match="folder"):
        open_table(tmp_path)


def test_npz_with_objects_or_unequal_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="plain arrays"):
        open_table(tmp_path / "objects.npz")
    np.savez(tmp_path / "unequal.npz", a=np.zeros(2), b=np.zeros(3))
    with pytest.raises(UserError, match="different numbers of rows"):
        open_table(tmp_path / "unequal.npz")
    np.savez(tmp_path / "deep.npz", a=np.zeros((2, 2, 2)))
    with pytest.raises(UserError, match=r"'a' .* \(2, 2, 2\)"):
        open_table(tmp_path / "deep.npz")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["1", "-2.5e3", None, "inf"], "number"),
        (["yes", "No", "?"], "flag"),
        (["2024-01-31", "2024-01-31 10:00", ""], "date"),
        (["2024-01-31T10:00:00Z", "2024-01-31T10:00:00+02:00"], "date"),
        (["1", "2", "three"], "text"),
        (["2024-01-31", "later"], "text"),
        (["", "NA", " "], "empty"),
        ([None, None], "empty"),
        ([1, None], "number"),
        ([True, None], "flag"),
        ([date(2024, 1, 31), None], "date"),
    ],
)
def test_what_a_column_holds(values: list[object], found: str) -> None:
    evidence = ColumnProfile("x")
    for value in values:  # a piece each, as the pieces of a large table
        evidence.add(pa.array([value], pa.array(values).type))
    assert evidence.type == found


def test_types_without_a_meaning_are_refused() -> None:
    with pytest.raises(UserError, match="'x' is of the type list"):
        ColumnProfile("x").add(pa.array([[1]]))


def test_15_000_columns_are_read(tmp_path: Path) -> None:
    names = [f"column{place}" for place in range(15_000)]
    table = open_table(write(tmp_path / "t.csv", "\n".join([",".join(names), *[",".join(["1.5"] * 15_000)] * 3])))
    assert table.names == tuple(names)
    assert [piece.num_rows for piece in table.batches(names)] == [3]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (f"a,b\n1,2\n{'x' * 10**7},3\n", "has a row of more than 4,194,304 bytes"),
        (f'a,b\n1,2\n"{"x" * 10**7}\n', "or a quote that is never closed"),
        (f"a,{'x' * 10**7}\n1,2\n", "the first line of .* has more than 1,048,576 bytes"),
        (f"a,{'x' * 200_000}\n1,2\n", "field larger than field limit"),
    ],
)
def test_a_huge_field_is_one_sentence(content: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named) as caught:
        read(write(tmp_path / "t.csv", content))
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_every_end_of_line_is_one(end: str, tmp_path: Path) -> None:
    content = end.join(["a,b", "1.5,x", "2,y", ""])
    assert read(write(tmp_path / "t.csv", content)) == {"a": ["1.5", "2"], "b": ["x", "y"]}


def test_a_parquet_file_that_unpacks_to_too_much_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "zeros.parquet"
    pq.write_table(pa.table({"x": np.zeros(2**17)}), path, compression="zstd", use_dictionary=False)
    assert open_table(path).names == ("x",)
    monkeypatch.setattr("boolit.lab.datasets.tables.bounded.LEAST_UNPACKED", 2**16)
    with pytest.raises(UserError, match="a row group states"):
        open_table(path)
