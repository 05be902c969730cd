"""Tables in every format, and what they must not claim."""

from __future__ import annotations

import io
import json
import math

import pandas as pd
import pytest
from rich.console import Console

from boolit.errors import UserError
from boolit.lab.reports.report import Section, html_page
from boolit.lab.reports.tables import Table, comparison_table, register, render, search_table, split_tables, study_tables
from boolit.lab.results.splits import SplitVerdict
from boolit.lab.results.statistics import Comparison, Summary, compare
from boolit.lab.runs import Metric

ACCURACY = Metric(name="accuracy")
MEANS = {"or_and_xnor_nail_d": 0.93, "xnor_ail": 0.929, "relu": 0.6, "tanh": 0.5}


def comparison(metric: Metric = ACCURACY, **means: float):
    summaries = [Summary(name, 10, mean, 0.01, parameters=16_384) for name, mean in (means or MEANS).items()]
    return Comparison(metric, tuple(summaries), pairs=6)


def printed(table: Table, width: int = 80, ascii_only: bool = False) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if ascii_only else "utf-8", errors="replace")
    console = Console(width=width, file=file, legacy_windows=False)
    console.print(table)
    file.seek(0)
    return file.read()


def test_the_best_mean_is_bold_and_those_that_may_equal_it_italic() -> None:
    table = comparison_table(comparison(), "Made up")
    column = "test accuracy (%)"
    assert {row: table.mark(row, column) for row in table.text.index} == {
        "or_and_xnor_nail_d": "bold",
        "xnor_ail": "italic",
        "relu": "",
        "tanh": "",
    }
    assert table.text.loc["relu", column] == "60.0 ± 0.3"
    assert table.text.loc["or_and_xnor_nail_d", "p"] == ""
    assert table.data.loc["relu", "difference"] == pytest.approx(0.33)
    assert table.data.loc["relu", "difference low"] < 0.33 < table.data.loc["relu", "difference high"]


def test_the_papers_test_is_beside_ours_and_called_the_papers() -> None:
    table = comparison_table(comparison(a=0.93, b=0.919, c=0.9, d=0.89), "Made up")
    assert table.data.loc["b", "p (paper)"] < 0.05 < table.data.loc["b", "p"]
    assert table.mark("b", "test accuracy (%)") == "italic"
    assert "decides nothing" in table.notes[-1]


@pytest.mark.parametrize("runs", [1, 2])
def test_one_or_two_seeds_have_a_table_without_a_test(runs: int) -> None:
    few = Comparison(ACCURACY, (Summary("a", runs, 0.9, 0.01), Summary("b", runs, 0.5, 0.01)))
    table = comparison_table(few, "Made up")
    assert table.text.loc["b", "p"] == "no test"
    assert math.isnan(table.data.loc["b", "effect"])


def test_diverged_and_solved_runs_are_counted() -> None:
    metric = Metric(name="accuracy", solved=0.99)
    summaries = (Summary("relu", 3, 0.9, 0.1, diverged=7, solved=2), Summary("tanh", 10, 0.8, 0.1, solved=0))
    table = comparison_table(Comparison(metric, summaries), "Made up")
    assert table.text.loc["relu", "diverged"] == "7/10"
    assert table.text.loc["relu", "solved (≥ 99 %)"] == "2/10"


def test_csv_has_unrounded_numbers_and_specs() -> None:
    frame = pd.read_csv(io.StringIO(render(comparison_table(comparison(), "Made up"), "csv")), index_col="activation")
    assert frame.loc["relu", "test accuracy"] == 0.6
    assert frame.loc["relu", "test accuracy standard error"] == pytest.approx(0.01 / math.sqrt(10))
    assert frame.index[0] == "or_and_xnor_nail_d"


def test_records_are_json_values() -> None:
    first, *_, last = comparison_table(comparison(), "Made up").records()
    assert (first["activation"], first["p"], last["activation"], last["n"]) == ("or_and_xnor_nail_d", None, "tanh", 10)
    assert (last["test accuracy"], last["difference"]) == (0.5, 0.93 - 0.5)
    json.dumps(last, allow_nan=False)


def test_latex_is_escaped_and_marked() -> None:
    text = render(comparison_table(comparison(), "50 % of a_b"), "latex")
    assert r"50 \% of a\_b" in text
    assert r"\{OR, AND, XNOR$_{\mathrm{NAIL}}$ (d)\} &" in text
    assert r"\textbf{93.0 $\pm$ 0.3}" in text
    assert r"\textit{92.9 $\pm$ 0.3}" in text


def test_markdown_and_the_page_are_escaped_and_marked() -> None:
    table = comparison_table(comparison(), "<b>|made up|</b>")
    markdown, html = render(table, "markdown"), html_page([Section("title", "study", tables=[table])])
    assert r"\<b\>\|made up\|\</b\>" in markdown
    assert "**93.0 ± 0.3**" in markdown
    assert "&lt;b&gt;|made up|&lt;/b&gt;" in html
    assert "XNOR<sub>NAIL</sub>" in html
    assert '<td data-value="0.93" class="bold">93.0 ± 0.3</td>' in html
    with pytest.raises(UserError, match="csv, latex, markdown, not 'xls'"):
        render(table, "xls")


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_cuts_no_number(width: int) -> None:
    sizes = [comparison() for _ in range(1)]
    text = printed(study_tables(sizes, "Made up")[0], width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "93.0" in text
    assert "{OR, AND, XNORₙₐᵢₗ (d)}" in text


def test_a_terminal_without_unicode_has_specs() -> None:
    assert "or_and_xnor_nail_d" in printed(comparison_table(comparison(), "Made up"), ascii_only=True)


def test_an_unfinished_table_has_no_tests_marks_or_ranking() -> None:
    table = comparison_table(comparison(), "Made up").without_verdict()
    assert table.text.index.tolist() == ["relu", "tanh", "xnor_ail", "or_and_xnor_nail_d"]
    assert not {"p", "difference", "effect", "p (paper)"} & set(table.text)
    assert "parameters" in table.text
    assert table.mark("or_and_xnor_nail_d", "test accuracy (%)") == ""
    assert table.title == "Unfinished: Made up"


def frame_of(**columns) -> pd.DataFrame:
    defaults = {"activation": ["a"] * 3 + ["b"] * 3, "state": "finished", "depth": 1, "parameters": 36, "seconds": 1.0}
    values = {"test_accuracy": [0.9, 0.91, 0.92, 0.5, 0.51, 0.52], "trial": False, "settings": "x", "size": 36}
    return pd.DataFrame(defaults | values | columns)


def test_several_sizes_have_a_table_of_scores_in_the_order_of_the_last() -> None:
    small, large = frame_of(budget=1000, size=1000), frame_of(budget=4000, size=4000)
    large["test_accuracy"] = large["test_accuracy"].to_numpy()[::-1]
    comparisons = compare(pd.concat([small, large], ignore_index=True), ACCURACY)
    scores, first, second = study_tables(comparisons, "Made up")
    assert scores.text.columns.tolist() == ["channels", "1k parameters", "4k parameters"]
    assert scores.text.index.tolist() == second.text.index.tolist() == ["b", "a"]
    assert first.text.index.tolist() == ["a", "b"]


def test_registered_tables_follow() -> None:
    @register
    def longest(frame: pd.DataFrame) -> Table | None:
        return Table.from_frame("Longest", frame.groupby("activation")[["seconds"]].max())

    *_, last = study_tables(compare(frame_of(), ACCURACY), "Made up", frame_of())
    assert (last.title, last.text.loc["a", "seconds"]) == ("Longest", "1")


def test_tables_of_splits_have_baselines_and_all_pairs() -> None:
    scores = {"relu": [0.5, 0.6, 0.55], "max": [0.7, 0.71, 0.72], "tanh": [0.4, 0.5, 0.6], "guess": [0.3, 0.31, 0.3]}
    result = SplitVerdict(ACCURACY, 20, 80, scores, "guess", "guessing", diverged={"max": 1})
    table, pairs = split_tables(result, "Made up", {"relu": 36, "max": 40})
    assert table.text.columns.tolist() == [
        "accuracy (%)",
        "difference from ReLU",
        "p",
        "p vs guessing",
        "parameters",
        "diverged",
    ]
    assert table.text.loc["max", "parameters"] == "40"
    assert table.text.loc["max", "diverged"] == "1"
    assert len(pairs.text) == 6
    assert "Max − ReLU" in render(pairs, "markdown")


def test_a_search_ranks_settings_with_diverged_runs_as_the_worst() -> None:
    rates = [0.1] * 2 + [0.01] * 2
    frame = pd.DataFrame({"activation": "relu", "learning_rate": rates, "valid_accuracy": [0.9, math.nan, 0.8, 0.7]})
    frame["state"] = ["finished", "diverged", "finished", "finished"]
    table = search_table(frame, Metric(name="accuracy", split="valid"), ["learning_rate"], "Search")
    assert table.text["valid accuracy (%)"].tolist() == ["80.00", "75.00"]
    assert table.text["diverged"].tolist() == ["1", "0"]
    assert table.text["learning rate"].tolist() == ["0.1", "0.01"]
