"""The claims of the paper's text, and whether they follow from its printed tables or hold in our runs.

``claims.toml`` has the sentences and the test of each. A test compares means of activations, column by column, so the same code
judges the printed tables (mean, standard error, n) and our runs (the same three, computed from one row per run).
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd
from scipy import stats

from boolit.lab.paper.measured import columns, our_cells, summarize
from boolit.lab.paper.printed import labels, table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOLDS, DOES_NOT_FOLLOW, NOT_TESTABLE = "holds", "does not follow", "not testable"
CONFIRMED, NOT_CONFIRMED, CONTRADICTED, NOT_TESTABLE_HERE = "confirmed", "not confirmed", "contradicted", "not testable here"
ANALOGUE = "analogue"  # only analogues were run; they show an order of activations, which decides nothing at the paper's size
ALPHA = 0.05


@dataclass(frozen=True)
class Criterion:
    """What a claim says about a table: by default, that ``left`` has a higher mean than ``right`` in every column.

    Activations are specs or patterns ("*ail*") separated by blanks; "!" excludes ("* !relu"). Rows of other networks, such as
    "relu (base SRAN)", match only patterns with a bracket.
    """

    left: str = "*"
    right: str = ""  # those that are on the left too are left out
    partner: str = ""  # "_d>_p": compare each with the activation whose name has "_p" for "_d"
    against: str = ""  # compare with the same activation and column of another table
    columns: list[str] | str = ""  # names, "best" (each activation in its best column), "mean" (of all columns); default all
    pick: str = ""  # "best": only the best activation on the left of each column
    pick_right: str = ""  # "worst": only the worst on the right
    p: list[float] | None = None  # the range of the p-value; [0.05, 1] claims that there is no significant difference
    share: float = 1.0  # the share of cells (activation on the left, column) that must satisfy the claim
    value: float | None = None  # the activations on the left have this mean
    reaches: float | None = None  # the best run of each activation on the left reaches this value
    lower: bool = False  # lower values are better

    @property
    def says_equal(self) -> bool:
        """Whether the claim is that something does not differ."""
        return self.value is not None or (self.p is not None and self.p[1] == 1)

    @property
    def is_about_ranks(self) -> bool:
        """Whether the claim is about the order of activations in a table, not about values, significance or two tables."""
        return self.value is None and self.reaches is None and self.p is None and not self.against


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: its words, its place and table, its test, and the recorded verdict on the printed tables."""

    id: str
    quote: str
    place: str
    table: str
    printed: str
    test: Criterion | None = None
    reading: str = ""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim, with the test, the numbers of runs, the p-value and the comparisons that decided it."""

    verdict: str
    test: str = ""
    n: str = ""
    p: float = math.nan
    details: str = ""


class Cell(NamedTuple):
    """A cell of a table; of metrics where lower is better the negative values."""

    mean: float
    standard_error: float
    n: int
    best: float


CellKey = tuple[str, str, str]  # table, column and activation
Cells = dict[CellKey, Cell]


class Comparison(NamedTuple):
    """A difference of two means (or of a mean and a constant) and its two-sided p-value."""

    left: str
    right: str
    column: str
    difference: float
    p: float = math.nan
    n: str = ""


@lru_cache
def _file() -> dict[str, Any]:
    return tomllib.loads(resources.files("boolit.lab.paper").joinpath("claims.toml").read_text(encoding="utf-8"))


def claims() -> list[Claim]:
    """Return all claims in the order of the paper.

    Example:
        >>> claim = next(claim for claim in claims() if claim.id == "tmn-second")
        >>> evaluate(claim).verdict
        'does not follow'
    """
    return [Claim(**{**entry, "test": Criterion(**entry["test"]) if "test" in entry else None}) for entry in _file()["claims"]]


def claim_table(ours: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one row per claim with the verdict on the printed tables and the verdict on our runs.

    Args:
        ours: Runs or summaries, as in `evaluate`. Defaults to the summaries that ship with the package.
    """
    rows, cells = [], our_cells() if ours is None else ours
    for claim in claims():
        printed, measured = evaluate(claim), evaluate(claim, cells)
        verdicts = {"printed": printed.verdict, "printed_details": printed.details, "ours": measured.verdict}
        about = {key: getattr(claim, key) for key in ("id", "quote", "place", "table", "reading")}
        rows.append({**about, **verdicts, "test": measured.test, "n": measured.n, "p": measured.p, "details": measured.details})
    return pd.DataFrame(rows)


def evaluate(claim: Claim, ours: pd.DataFrame | None = None) -> Verdict:
    """Judge a claim by the paper's printed tables or, if given, by our runs.

    The printed tables are judged by their means and, where a claim is about significance, by Student's t-test as in the paper.
    Our runs are judged by Welch's t-test. A claim is confirmed if every cell it is about was run and every comparison (or the
    claimed share) is significant in its favor, and contradicted if one is significant against it after Šidák's correction.
    Analogues are not judged: for a claim about ranks the verdict is "analogue", with the number of comparisons that are in the
    claimed order.

    Args:
        claim: The claim.
        ours: Runs, with the columns that `boolit.lab.paper.measured.summarize` expects, or the summaries that it returns.
    """
    test, names = claim.test, claim.table.split()
    if test is None:
        return Verdict(NOT_TESTABLE if ours is None else NOT_TESTABLE_HERE)
    tables = [*names, test.against]
    printed = _prepare(test, _printed_cells(tables))
    if ours is None:
        comparisons = list(_compare(test, names, printed, printed=True))
        return _judge_printed(test, comparisons) if comparisons else Verdict(NOT_TESTABLE)
    cells = ours if "mean" in ours else summarize(ours)
    for kind in ("reproduction", ANALOGUE):
        measured = _prepare(test, _measured_cells(tables, cells[cells["kind"] == kind], test.lower))
        comparisons = list(_compare(test, names, measured, printed=False))
        if not comparisons or (kind == ANALOGUE and not test.is_about_ranks):
            continue
        verdict = _judge_measured(test, comparisons) if kind == "reproduction" else _count_ordered(comparisons)
        return _weigh(verdict, _needed(test, names, printed), set(measured))
    return Verdict(NOT_TESTABLE_HERE)


def _count_ordered(comparisons: Sequence[Comparison]) -> Verdict:
    ordered = sum(item.difference > 0 for item in comparisons)
    return Verdict(ANALOGUE, f"ranks: {ordered} of {len(comparisons)} in this order", _runs(comparisons))


def _runs(comparisons: Sequence[Comparison]) -> str:
    return " / ".join(dict.fromkeys(item.n for item in comparisons))


def _needed(test: Criterion, tables: Sequence[str], printed: Cells) -> set[CellKey]:
    """Return the printed cells that a claim is about."""
    rows = list(dict.fromkeys(spec for _, _, spec in printed))
    chosen = {*_select(test.left, rows), *_select(test.right, rows)}
    return {(label, column, spec) for label, column, spec in printed if label in tables and spec in chosen}


def _weigh(verdict: Verdict, needed: set[CellKey], measured: set[CellKey]) -> Verdict:
    """Return the verdict on a part of the cells, which confirms nothing about the others."""
    if needed <= measured:
        return verdict
    kept = NOT_CONFIRMED if verdict.verdict == CONFIRMED else verdict.verdict
    return replace(verdict, verdict=kept, test=f"{verdict.test}; {len(needed & measured)} of {len(needed)} cells run")


# Cells of the printed tables and of our runs.


def _printed_cells(tables: Sequence[str]) -> Cells:
    cells = [(label, cell) for label in tables if label in labels() for cell in table(label)]
    # A standard error printed as 0.00 is at most 0.005.
    return {(t, c.column, c.activation): Cell(c.mean, max(c.standard_error, 0.005), c.n, c.mean) for t, c in cells}


def _measured_cells(tables: Sequence[str], ours: pd.DataFrame, lower: bool) -> Cells:
    chosen, sign = ours[ours["label"].isin(tables)], (-1) ** lower
    keys = zip(chosen["label"], chosen["column"], chosen["activation"], strict=True)
    values = zip(chosen["mean"], chosen["standard_error"], chosen["n"], chosen["best"], strict=True)
    return {key: Cell(sign * mean, error, n, sign * best) for key, (mean, error, n, best) in zip(keys, values, strict=True)}


def _prepare(test: Criterion, cells: Cells) -> Cells:
    """Return the cells that a test compares, by its ``columns``."""
    if isinstance(test.columns, list):
        return {key: cell for key, cell in cells.items() if key[1] in test.columns}
    if not test.columns:
        return cells
    rows: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for (label, _, spec), cell in cells.items():
        rows[label, spec].append(cell)
    complete = {key: row for key, row in rows.items() if len(row) >= len(columns(key[0]))}
    if test.columns == "best":
        return {(t, "best", a): max(row, key=lambda cell: cell.mean) for (t, a), row in complete.items()}
    averages: Cells = {}
    for (label, spec), row in complete.items():
        error = math.hypot(*(cell.standard_error for cell in row)) / len(row)
        averages[label, "mean", spec] = Cell(fmean(cell.mean for cell in row), error, min(cell.n for cell in row), math.nan)
    return averages


# Comparisons.


def _select(patterns: str, rows: Sequence[str]) -> list[str]:
    def matches(row: str, pattern: str) -> bool:
        return fnmatchcase(row, pattern) and (" " not in row or "(" in pattern)

    chosen = [row for row in rows if any(matches(row, pattern) for pattern in patterns.split())]
    unwanted = [pattern[1:] for pattern in patterns.split() if pattern.startswith("!")]
    return [row for row in chosen if not any(matches(row, pattern) for pattern in unwanted)]


def _compare(test: Criterion, tables: Sequence[str], cells: Cells, printed: bool) -> Iterator[Comparison]:
    by_column: dict[tuple[str, str], dict[str, Cell]] = defaultdict(dict)
    for (label, column, spec), cell in cells.items():
        by_column[label, column][spec] = cell
    named = {name for name in f"{test.left} {test.right}".split() if not set(name) & set("*!")}
    if not named <= {spec for _, _, spec in cells}:
        return
    for (label, column), group in list(by_column.items()):
        left = _select(test.left, list(group)) if label in tables else []
        right = _select(test.right, [spec for spec in group if spec not in left or test.pick_right])
        choices = (len(left) if test.pick else 1) * (len(right) if test.pick_right else 1)
        if test.pick and left:
            left = [max(left, key=lambda spec: group[spec].mean)]
        if test.pick_right and right:
            right = [min(right, key=lambda spec: group[spec].mean)]
        place = f"{label} {column}" if len(tables) > 1 else column
        other = by_column[test.against, column] if test.against else group
        for spec in left:
            if test.value is not None or test.reaches is not None:
                yield _from_constant(test, spec, group[spec], place)
            old, _, new = test.partner.partition(">")
            rivals = [spec.replace(old, new)] if test.partner else [spec] if test.against else right
            for rival in rivals:
                if rival in other and other[rival] is not group[spec]:
                    name = f"{rival} in {test.against}" if test.against else rival
                    p = _t_test(group[spec], other[rival], equal_variances=printed)
                    p = p if printed else _sidak(p, choices)  # the paper picks the best without a correction
                    runs = f"{group[spec].n}, {other[rival].n}"
                    yield Comparison(spec, name, place, group[spec].mean - other[rival].mean, p, runs)


def _t_test(cell: Cell, rival: Cell, equal_variances: bool) -> float:
    first, second = ((each.mean, each.standard_error * math.sqrt(each.n), each.n) for each in (cell, rival))
    if not first[1] + second[1] > 0:  # a single run, or runs without any spread
        return math.nan
    return float(stats.ttest_ind_from_stats(*first, *second, equal_var=equal_variances).pvalue)


def _sidak(p: float, comparisons: int) -> float:
    return 1 - (1 - p) ** comparisons if p > 1e-9 else p * comparisons


def _from_constant(test: Criterion, spec: str, cell: Cell, column: str) -> Comparison:
    sign = (-1) ** test.lower
    if test.reaches is not None:
        return Comparison(spec, str(test.reaches), column, cell.best - sign * test.reaches, n=str(cell.n))
    difference = cell.mean - sign * (test.value or 0)
    p = float(2 * stats.t.sf(abs(difference / cell.standard_error), cell.n - 1)) if cell.standard_error > 0 else math.nan
    return Comparison(spec, str(test.value), column, difference, p, str(cell.n))


# Verdicts.


def _satisfied(test: Criterion, comparisons: Sequence[Comparison], passes: Callable[[Comparison], bool]) -> bool:
    """Whether the claimed share of cells (activation on the left, column) pass in all their comparisons."""
    cells: dict[tuple[str, str], bool] = defaultdict(lambda: True)
    for item in comparisons:
        cells[item.left, item.column] &= passes(item)
    return sum(cells.values()) >= test.share * len(cells)


def _judge_printed(test: Criterion, comparisons: Sequence[Comparison]) -> Verdict:
    def passes(item: Comparison) -> bool:
        if test.value is not None:
            return abs(item.difference) < 0.005  # printed with two decimals
        return (test.p is None or test.p[0] <= item.p <= test.p[1]) and (test.says_equal or item.difference > 0)

    failing = [item for item in comparisons if not passes(item)]
    details = f"in {len(comparisons) - len(failing)} of {len(comparisons)} comparisons"
    details += f", but {_list(failing)}" if failing else ""
    verdict = HOLDS if _satisfied(test, comparisons, passes) else DOES_NOT_FOLLOW
    return Verdict(verdict, "Student's t-test" if test.p else "means", comparisons[0].n, details=details)


def _judge_measured(test: Criterion, comparisons: Sequence[Comparison]) -> Verdict:
    def corrected(item: Comparison) -> float:
        return 1.0 if math.isnan(item.p) else _sidak(item.p, len(comparisons))

    def supports(item: Comparison) -> bool:
        low, high = test.p or (0.0, ALPHA)
        return item.difference > 0 and low <= item.p <= high

    runs = _runs(comparisons)
    if test.reaches is not None:
        reached = {item.left for item in comparisons if item.difference >= 0} == {item.left for item in comparisons}
        return Verdict(CONFIRMED if reached else NOT_CONFIRMED, "best run", runs, details=_list(comparisons))
    name = "one-sample t-test" if test.value is not None else "Welch's t-test"
    smallest = min(comparisons, key=corrected)
    if test.says_equal:
        if math.isnan(smallest.p):
            return Verdict(NOT_CONFIRMED, name, runs, details="single runs")
        equal = _satisfied(test, comparisons, lambda item: corrected(item) >= ALPHA)
        return Verdict(CONFIRMED if equal else CONTRADICTED, name, runs, corrected(smallest), _list([smallest]))
    against = [item for item in comparisons if item.difference < 0 and corrected(item) < ALPHA]
    if _satisfied(test, comparisons, supports):
        return Verdict(CONFIRMED, name, runs, max(item.p for item in comparisons if supports(item)))
    if not _satisfied(test, comparisons, lambda item: item not in against):
        return Verdict(CONTRADICTED, name, runs, min(map(corrected, against)), _list(against))
    undecided = [item for item in comparisons if not supports(item)]
    return Verdict(NOT_CONFIRMED, name, runs, max(item.p for item in undecided), _list(undecided))


def _list(comparisons: Sequence[Comparison], most: int = 4) -> str:
    def text(item: Comparison) -> str:
        difference = f"{item.difference:+.3g}".replace("-", "−")
        p = "" if math.isnan(item.p) else f" (p = {item.p:.2g})"
        return f"{item.left} − {item.right} in {item.column} {difference}{p}"

    more = f"; and {len(comparisons) - most} more" if len(comparisons) > most else ""
    return "; ".join(text(item) for item in sorted(comparisons, key=lambda item: item.difference)[:most]) + more
