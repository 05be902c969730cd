"""Every key of a TOML file is found on the line it is written on."""

import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from boolit.lab.studies.validation_errors import line_numbers, line_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = '''\
title = "a # b [c] = d"

[data]   # a comment
name = "parity"
"quoted key" = 1
a . b = 2
list = [
  1,  # key = 2
  [2],
]
text = """
[not.a.table]
not_a_key = 3
"""
after = {x = 1, y = [2]}

[hparams."max+xnor_ail_d"]
eps = 1e-8
[[many]]
one = 1
'''


def test_lines_of_everything_toml_has() -> None:
    assert line_numbers(TEXT) == {
        ("title",): 1,
        ("data",): 3,
        ("data", "name"): 4,
        ("data", "quoted key"): 5,
        ("data", "a", "b"): 6,
        ("data", "list"): 7,
        ("data", "text"): 11,
        ("data", "after"): 15,
        ("hparams", "max+xnor_ail_d"): 17,
        ("hparams", "max+xnor_ail_d", "eps"): 18,
        ("many",): 19,
        ("many", "one"): 20,
    }


def test_what_is_not_there_is_where_its_table_is() -> None:
    numbers = line_numbers(TEXT)
    assert line_of(numbers, ("data", "missing")) == 3
    assert line_of(numbers, ("data", "list", 1, 0)) == 7
    assert line_of(numbers, ("nowhere",)) == 1


NAMES = st.text("abcxyz_-09", min_size=1, max_size=6)
VALUES = st.sampled_from(["1", '"x = [1]"', "[\n 1,\n 2]", "'''a\nb = 1\n'''", "{a = 1}", '"a\\"b"', "true # [comment]"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4), st.booleans())
def test_a_line_found_for_a_key_assigns_that_key(tables: dict[str, dict[str, str]], spaced: bool) -> None:
    gap = "\n\n" if spaced else "\n"
    text = gap.join("\n".join([f"[{table}]", *(f"{k} = {v}" for k, v in keys.items())]) for table, keys in tables.items())
    parsed: dict[str, Any] = tomllib.loads(text)
    numbers, lines = line_numbers(text), text.splitlines()
    for table, keys in parsed.items():
        assert lines[numbers[(table,)] - 1] == f"[{table}]"
        for key in keys:
            assert lines[numbers[(table, key)] - 1].startswith(f"{key} = ")
