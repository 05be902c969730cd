"""Tables: the marks follow their rules, and every format shows the same table without breaking on what is in it."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from boolit.errors import UserError
from boolit.lab.reports.tables import (
    FORMATS,
    Marks,
    ResultCell,
    ResultRow,
    ResultTable,
    comparison_table,
    render,
    score_table,
    study_tables,
    terminal_table,
)
from boolit.lab.reports.tables.model import DARK, column_marks, column_shades
from boolit.lab.results.scores import Score, ScoreSummary
from boolit.lab.results.statistics import Comparison, ComparisonMethod, compare, compare_summaries
from boolit.lab.runs import Metric, Record, Run

ACCURACY = Metric(name="accuracy")
LOSS = Metric(name="rmse")
NASTY = r"<script>&\"'|*_`$#%{}^~\ </td>"


def comparison(metric: Metric = ACCURACY, **means: float) -> Comparison:
    return compare_summaries(
        [ScoreSummary.from_standard_error(name, mean, 0.004, n=32) for name, mean in means.items()], metric
    )


def test_marks_are_best_top_two_and_not_distinguishable():
    found = column_marks(comparison(a=0.93, b=0.925, c=0.924, d=0.6))
    assert found == {
        "a": Marks(bold=True, underlined=True, italic=True),
        "b": Marks(underlined=True, italic=True),
        "c": Marks(italic=True),
        "d": Marks(),
    }
    found = column_marks(comparison(LOSS, a=0.93, b=0.6, c=0.61))
    assert (found["b"].bold, found["c"].underlined, str(found["a"])) == (True, True, "")


def test_means_that_print_alike_share_a_mark():
    means = {"a": 0.97118, "b": 0.97117, "c": 0.97111, "d": 0.9705}
    coarse, fine = column_marks(comparison(**means), resolution=1e-4), column_marks(comparison(**means))
    assert [name for name, mark in coarse.items() if mark.bold] == ["a", "b"]
    assert [name for name, mark in coarse.items() if mark.underlined] == ["a", "b"]
    assert [name for name, mark in fine.items() if mark.bold] == ["a"]
    third = column_marks(comparison(a=0.995435, b=0.995115, c=0.995087, d=0.99), resolution=1e-4)  # tab:cnn-mnist, 260k
    assert [name for name, mark in third.items() if mark.underlined] == ["a", "b", "c"]


def test_nothing_is_italic_without_a_test_and_nothing_marked_without_a_run():
    single = column_marks(compare([Score("a", 1, (0.9,)), Score("b", 1, (0.5,))], ACCURACY))
    assert single == {"a": Marks(bold=True, underlined=True), "b": Marks(underlined=True)}
    none = compare([Score("a", 1, (), 3), Score("b", 1, (), 3)], ACCURACY)
    assert set(column_marks(none).values()) == {Marks()}
    assert column_shades(none) == {}
    part = column_marks(compare([Score("a", 1, (0.9, 0.8)), Score("b", 1, (), 2)], ACCURACY))
    assert part["b"] == Marks()


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), min_size=2), st.sampled_from([ACCURACY, LOSS]))
def test_shades_run_from_the_worst_to_the_best_in_line(means, metric):
    found = column_shades(comparison(metric, **means))
    low, high = sorted((min(means.values()), max(means.values())), reverse=metric.goal == "min")
    if low == high:
        assert found == {}
    else:
        assert found == pytest.approx({name: (mean - low) / (high - low) for name, mean in means.items()})


@pytest.mark.parametrize("shade", [0.0, 0.3, DARK, DARK + 0.01, 0.8, 1.0])
def test_text_has_the_better_contrast_with_its_background(shade):
    level = round(255 * (1 - shade)) / 255
    luminance = level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4
    white, black = 1.05 / (luminance + 0.05), (luminance + 0.05) / 0.05
    assert max(white, black) > 4.4
    assert ResultCell("x", shade=shade).dark == (white > black) or abs(white - black) < 0.2


def scored() -> ResultTable:
    columns = {"1 layer": comparison(relu=0.9206, tanh=0.9459), "2 layers": comparison(relu=0.9629, or_ail=0.9797)}
    return score_table(columns, f"Scores {NASTY}")


def test_columns_are_marked_apart_and_gaps_stay_empty():
    table = scored()
    assert [row.activation for row in table.rows] == ["relu", "tanh", "or_ail"]  # as known_specs has them
    assert [row.map for row in table.rows] == ["1→1", "1→1", "2→1"]
    texts = [[cell.text + cell.spread for cell in row.cells] for row in table.rows]
    assert texts == [["92.1 ± 0.4", "96.3 ± 0.4"], ["94.6 ± 0.4", ""], ["", "98.0 ± 0.4"]]
    bold = [[cell.marks.bold for cell in row.cells] for row in table.rows]
    assert bold == [[False, False], [True, False], [False, True]]
    assert table.notes[0] == "Mean ± standard error, n = 32."
    assert "two-sided Student's t-test, p > 0.05" in table.notes[1]


def test_figures_after_the_point_follow_the_standard_error_or_are_given():
    columns = {"c": comparison(relu=0.92064, tanh=0.94591)}
    assert score_table(columns, "t").rows[0].cells[0].text == "92.1"
    assert score_table(columns, "t", decimals=3).rows[0].cells[0].text == "92.064"
    assert score_table({"c": comparison(LOSS, relu=0.27123)}, "t").rows[0].cells[0].text == "0.271"


def test_solved_and_diverged_are_shown_where_there_is_something_to_show():
    values = {"relu": ((0.5, 0.6, 0.7), 0), "or_ail": ((1.0, 0.99, 0.8), 1)}
    shown = compare([Score(name, 36, *v) for name, v in values.items()], ACCURACY, solved=0.99)
    table = comparison_table(shown, "t")
    assert "solved (≥ 99 %)" in table.columns
    row = dict(zip(table.columns, table.rows[0].cells, strict=True))
    assert (row["solved (≥ 99 %)"].text, row["diverged"].text, row["n"].text) == ("50 % (2/4)", "1/4", "3")
    assert dict(zip(table.columns, table.rows[1].cells, strict=True))["diverged"].text == ""
    plain = comparison_table(compare([Score("relu", 36, (0.5, 0.6))], ACCURACY), "t")
    assert not {"diverged", "solved (≥ 99 %)"} & set(plain.columns)
    assert score_table({"a": shown}, "t").columns == ("a", "solved (≥ 99 %)", "diverged")


def test_no_test_is_said_where_there_is_none():
    table = comparison_table(compare([Score("a", 1, (0.9, 0.8)), Score("b", 1, (0.5,)), Score("c", 1, (), 2)], ACCURACY), "t")
    rows = [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]
    assert [row["p"].text for row in rows] == ["", "no test", "no test"]
    assert [row["effect"].text for row in rows] == ["", "–", "–"]
    assert rows[2]["test accuracy (%)"].text == "–"


class Reader(HTMLParser):
    """Collects cells, and fails on a tag that is not closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.open.append(tag)
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def nasty() -> ResultTable:
    row = ResultRow(
        NASTY, NASTY, (ResultCell(NASTY, NASTY, Marks(True, True, True), 0.7, {"": NASTY}), ResultCell("", shade=0.1))
    )
    return ResultTable(NASTY, (NASTY, NASTY), (row,), (NASTY,), NASTY)


def test_html_escapes_everything_and_is_well_formed():
    for table in (nasty(), scored()):
        reader = Reader()
        reader.feed(render(table, "html"))
        assert reader.open == []
        known = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "code", "p", "b", "u", "i", "sub", "button"}
        assert reader.tags <= known | {"svg", "line", "circle"}
    assert [cell for cell in reader.cells if "±" in cell] == ["92.1 ± 0.4", "96.3 ± 0.4", "94.6 ± 0.4", "98.0 ± 0.4"]
    text = render(scored(), "html")
    assert '<td data-value="0.9459"><b><u><i>94.6</i></u></b> ± 0.4<svg' in text
    assert '<td data-value="0.9206"><u>92.1</u> ± 0.4<svg' in text
    assert '<th scope="row" data-spec="or_ail" title="or_ail">OR<sub>AIL</sub><code class="spec">or_ail</code></th>' in text
    assert html.escape(NASTY) in text


def test_intervals_are_drawn_on_one_scale_per_column():
    """The lowest end is at the left, the highest at the right; what is no activation has no say in the scale."""
    data = {"relu": (0.4, 0.5, 0.6), "tanh": (0.5, 0.7, 0.9), "majority class": (0.0, 0.1, 0.2)}
    rows = (
        ResultRow(name, "", (ResultCell("x", data={" low": low, "": middle, " high": high}),))
        for name, (low, middle, high) in data.items()
    )
    text = render(ResultTable("t", ("c",), tuple(rows)), "html")
    drawn = re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)".*?<circle cx="([\d.]+)"', text)
    assert [[float(end) for end in each] for each in drawn] == [[4.0, 40.8, 22.4], [22.4, 96.0, 59.2]]


def test_a_mean_of_seeds_has_its_interval_by_students_t():
    values = [0.5, 0.6, 0.7, 0.55]
    table = comparison_table(compare([Score("relu", 36, tuple(values)), Score("tanh", 36, (0.99, 1.0))], ACCURACY), "t")
    found = {row.activation: row.cells[1].data for row in table.rows}
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    assert (found["relu"][" low"], found["relu"][" high"]) == pytest.approx((low, high))
    assert found["tanh"][" high"] == 1.0  # no share lies beyond


def test_latex_is_balanced_and_has_the_papers_marks():
    for table in (nasty(), scored()):
        text = render(table, "latex").partition("\n")[2]  # without the line that names the packages
        bare = re.sub(r"\\[\\{}%&#_$]", "", text)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert not re.search(r"[%#<>→±−–]", re.sub(r"\$[<>]\$", "", bare))
        assert len({line.count("&") for line in bare.splitlines() if "&" in line}) == 1
    assert r"\cellcolor{black!100}\color{white}\textbf{\underline{\textit{94.6}}} $\pm$ 0.4" in text
    assert r"\cellcolor{black!0}\underline{92.1} $\pm$ 0.4" in text
    assert r"OR$_{\mathrm{AIL}}$ & 2$\to$1" in text


def test_markdown_has_one_line_a_row_and_escapes_what_it_reads():
    text = render(scored(), "markdown")
    assert "| Tanh | 1→1 | <u>***94.6***</u> ± 0.4 |  |" in text.splitlines()
    assert "| ReLU | 1→1 | <u>92.1</u> ± 0.4 | <u>96.3</u> ± 0.4 |" in text.splitlines()
    rows = [line for line in render(nasty(), "markdown").splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {5}
    assert "<script>" not in render(nasty(), "markdown")


def test_csv_has_numbers_and_not_percents():
    rows = list(csv.DictReader(render(scored(), "csv").splitlines()))
    assert float(rows[0]["1 layer"]) == 0.9206
    assert float(rows[0]["1 layer standard error"]) == pytest.approx(0.004)
    assert [row["2 layers marks"] for row in rows] == ["underlined", "", "bold underlined italic"]
    assert rows[1]["2 layers"] == ""


def test_terminal_shows_marks_background_and_nothing_of_the_texts_markup():
    console = Console(force_terminal=True, color_system="truecolor", width=300, record=True)
    with console.capture() as captured:
        console.print(terminal_table(scored()))
    assert "\x1b[1;3;4;38;2;255;255;255;48;2;0;0;0m94.6\x1b[0m" in captured.get()
    assert "\x1b[4;38;2;0;0;0;48;2;255;255;255m92.1\x1b[0m" in captured.get()
    plain = Console(force_terminal=False, width=300)
    with plain.capture() as captured:
        plain.print(terminal_table(score_table({"[red]x": comparison(relu=0.5)}, "[bold]t")))
    assert "[bold]t" in captured.get()
    assert "[red]x" in captured.get()


def test_a_terminal_has_the_papers_names_or_specs_where_it_has_ascii_only():
    table = ResultTable("t", ("minus relu",), (ResultRow("xnor_ail − or_and_xnor_nail_d", "", (ResultCell("1"),)),))
    written = {}
    for encoding in ("utf-8", "ascii"):
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace"), width=200)
        console.print(terminal_table(table))
        console.file.seek(0)
        written[encoding] = console.file.read()
    assert "XNORₐᵢₗ − OR, AND, XNORₙₐᵢₗ (d)" in written["utf-8"]
    assert "minus ReLU" in written["utf-8"]
    assert "xnor_ail ? or_and_xnor_nail_d" in written["ascii"]
    assert "minus relu" in written["ascii"]


def test_an_unknown_format_is_named():
    with pytest.raises(UserError, match="markdown, latex, html, csv, not 'word'"):
        render(scored(), "word")


def records(
    activations=("relu", "or_ail"), budgets=(None,), widths=((4, 2),), depths=(2,), goal="max", seeds=3
) -> list[Record]:
    found = []
    for a, budget, width, depth, seed in (
        (a, b, w, d, s) for a in activations for b in budgets for w in widths for d in depths for s in range(seeds)
    ):
        config = {
            "study": "s",
            "profile": "quick",
            "activation": a,
            "budget": budget,
            "parameters": (budget or 30 + sum(width)) + len(a),
            "width": list(width),
            "depth": depth,
            "seed": seed,
            "metric": {"name": "accuracy", "split": "test", "goal": goal},
        }
        run = Run.from_dict(config)
        value = (len(a) + seed + (budget or 0) / 1e6 + sum(width) / 100) / 20
        found.append(Record(run.key, run.config, "finished", {"test_accuracy": value}))
    return found


@pytest.mark.parametrize(
    ("swept", "columns"),
    [
        ({}, None),
        ({"budgets": (16384, 262144)}, ("16.4k", "262k")),
        ({"widths": ((8, 8), (16, 16))}, ("8-8", "16-16")),
        ({"depths": (1, 2)}, ("depth 1", "depth 2")),
        ({"depths": (1, 2), "budgets": (100, 200)}, ("depth 1", "depth 2")),
    ],
)
def test_a_studys_tables_follow_what_was_swept(swept, columns):
    tables = study_tables(records(**swept))
    tests = len(swept.get("depths", (2,)))
    assert len(tables) == tests + (columns is not None)
    if columns:
        assert tables[0].columns == columns
    for table in tables[-tests:]:
        assert [row.activation for row in table.rows] == ["or_ail", "relu"]
        assert table.columns[:2] == ("parameters", "test accuracy (%)")
        for format_ in FORMATS:
            assert render(table, format_)


def test_an_activation_with_one_width_only_makes_no_columns_of_widths():
    narrow = records(("relu",), widths=((4, 2),)) + records(("or_ail",), widths=((8, 4),))
    assert len(study_tables(narrow)) == 1


def test_studies_and_profiles_are_not_mixed():
    metrics = {"test_accuracy": math.nan}
    paper = [(r.config.replace(profile="paper"), r.state) for r in records()]
    other = [Record(config.key, config, state, metrics) for config, state in paper]
    tables = study_tables(records() + other, ComparisonMethod(holm=True), solved=0.5)
    assert [table.title for table in tables] == ["s (quick): test accuracy (%)", "s (paper): test accuracy (%)"]
    assert "Holm-corrected" in tables[0].notes[1]
