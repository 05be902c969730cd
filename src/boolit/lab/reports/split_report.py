"""The report of a comparison on resampled splits: its tables, its figures, and what its intervals and p-values cover."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from matplotlib.figure import Figure

from boolit.lab.reports._table_model import Cell, Marks, Row, Table
from boolit.lab.reports._table_names import map_of, metric_label
from boolit.lab.reports.figures import learning_curves, score_intervals
from boolit.lab.results.notation import Notation, p_number
from boolit.lab.results.resampled import Estimate, Pair, SplitComparison
from boolit.lab.results.split_verdict import SplitVerdict
from boolit.lab.runs import Record

NOTHING = Cell("")


def coverage(comparison: SplitComparison) -> str:
    """What the intervals and the p-values cover, in words."""
    splits, pairs = comparison.splits, len(comparison.pairs)
    return (
        f"Means over {splits.number} random splits, each with its own seed, tested on {splits.tested} of {splits.rows} rows. "
        "Intervals (95 %) and p cover the splits, the seeds and the test rows (Nadeau and Bengio's corrected variance); "
        f"differences are paired by split, and p is corrected for all {pairs} pair{'s' * (pairs != 1)} by Holm's method."
    )


def split_tables(
    verdict: SplitVerdict, title: str, parameters: Mapping[str, int], diverged: Mapping[str, int] | None = None
) -> list[Table]:
    """The scores, each with its difference from the reference; and all pairs, where there are more than these."""
    tables = [_scores(verdict, title, parameters, diverged or {})]
    if len(verdict.activations) > 2:
        tables.append(_pairs(verdict, title))
    return tables


def split_figures(verdict: SplitVerdict, records: Sequence[Record]) -> Iterator[tuple[str, str, Figure]]:
    """Name, caption and figure: the scores with their intervals, and the learning curves."""
    metric, found = verdict.comparison.metric, verdict.comparison.estimates
    shown = {name: (found[name].mean, found[name].low, found[name].high) for name in verdict.activations}
    words = metric.name.replace("_", " ")
    caption = f"{words} with 95 % intervals; the dashed line is {verdict.guess}."
    yield "scores", caption, score_intervals(shown, metric.name, (verdict.baseline, found[verdict.baseline].mean))
    yield "curves", f"{words} by epoch, over the splits.", learning_curves(records, metric.name)


def _scores(verdict: SplitVerdict, title: str, parameters: Mapping[str, int], diverged: Mapping[str, int]) -> Table:
    comparison, reference, writing = verdict.comparison, verdict.reference, verdict.notation

    def against(other: str, write: Callable[[Pair], Cell]) -> Callable[[str], Cell]:
        return lambda name: NOTHING if name == other else write(comparison.pair(name, other))

    columns: dict[str, Callable[[str], Cell]] = {
        metric_label(comparison.metric).removeprefix("test "): lambda name: _estimate(
            comparison.estimates[name], writing, Marks(bold=name == verdict.leader), comparison.metric.percent
        ),
        f"minus {reference}": against(reference, lambda pair: _estimate(pair.difference, writing)),
        "p": against(reference, lambda pair: Cell(p_number(pair.p_holm), data={"": pair.p_holm})),
        "p, guess": against(verdict.baseline, lambda pair: Cell(p_number(pair.p_holm), data={"": pair.p_holm})),
        "parameters": lambda name: Cell(str(parameters[name]), data={"": parameters[name]}) if name in parameters else NOTHING,
    }
    if any(diverged.values()):
        columns["diverged"] = lambda name: Cell(str(diverged.get(name, "")), data={"": diverged.get(name, 0)})
    rows = tuple(Row(name, map_of(name), tuple(write(name) for write in columns.values())) for name in comparison.ranking)
    bold = f"Bold: the {verdict.first} mean, which need not be significantly so."
    baseline = (
        f"{verdict.baseline}: {verdict.guess} (p, guess: against it), on the same test rows. A diverged run counts as a guess."
    )
    return Table(title, tuple(columns), rows, (coverage(comparison), bold, baseline))


def _pairs(verdict: SplitVerdict, title: str) -> Table:
    comparison, writing = verdict.comparison, verdict.notation
    order = comparison.ranking
    pairs = [comparison.pair(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
    rows = tuple(
        Row(
            f"{pair.first} − {pair.second}",
            "",
            (
                _estimate(pair.difference, writing, Marks(bold=pair.p_holm <= 0.05)),
                Cell(p_number(pair.p_holm), data={"": pair.p_holm}),
                Cell(p_number(pair.p), data={"": pair.p}),
            ),
        )
        for pair in pairs
    )
    note = "Intervals are of each difference alone; bold: significant after the correction (p ≤ 0.05)."
    return Table(f"{title}: all pairs", ("difference [95 % interval]", "p", "p, uncorrected"), rows, (note,))


def _estimate(found: Estimate, writing: Notation, marks: Marks | None = None, share: bool = False) -> Cell:
    low, high = (max(0.0, found.low), min(1.0, found.high)) if share else (found.low, found.high)
    spread = f" [{writing.number(low)}, {writing.number(high)}]"
    data = {"": found.mean, " low": low, " high": high, " standard error": found.error}
    return Cell(writing.number(found.mean), spread, marks or Marks(), data=data)
