"""Reading tables from files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas as pd
import pytest

from boolit.errors import UserError
from boolit.tables import read_table


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "a, b\n007,1.5\nx,\n"),
        ("t.csv", "\ufeffa;b\r\n007;1.5\r\nx;\r\n"),
        ("t.tsv", "a\tb\n007\t1.5\nx\t\n"),
        ("t.CSV", 'a|b\n"007"|1.5\nx|\n'),
        ("t.csv.gz", gzip.compress(b"a,b\n007,1.5\nx,\n", mtime=0)),
    ],
)
def test_text_files_keep_their_text(name: str, content: bytes | str, tmp_path: Path) -> None:
    frame = read_table(write(tmp_path / name, content))
    assert frame.to_dict("list") == {"a": ["007", "x"], "b": ["1.5", ""]}


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": pd.to_datetime(["2024-01-01", None])}, index=[5, 6])
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame.reset_index(drop=True))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "is empty"),
        ("t.csv", "a,a\n1,2\n", "two columns named 'a'"),
        ("t.csv", "1,2\n3,4\n", "numbers instead of column names"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "line 3"),
        ("t.csv", "a,b\n1,2\n1\n", "line 3 of .* has 1 fields instead of 2"),
        ("t.csv", b"a,b\n1,2\n\xff,2\n", "line 3 of .* is not UTF-8"),
        ("t.csv", b"a,b\n\0\0\n", "binary file"),
        ("t.parquet", b"PAR1 nothing", "cannot be read"),
        ("t.csv.gz", b"nothing", "cannot be read"),
        ("t.npz", b"", "no known suffix"),
        ("t", b"", "no known suffix"),
    ],
)
def test_what_cannot_be_read_is_one_line(name: str, content: bytes | str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_table(write(tmp_path / name, content))
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(UserError, match="not a file"):
        read_table(tmp_path)
