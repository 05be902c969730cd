"""Tables of a comparison on random splits of a table, and of a search for hyper-parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from boolit.lab.reports.tables.model import EMPTY, Marks, ResultCell, ResultRow, ResultTable, p_cell
from boolit.lab.results.names import map_of, metric_label
from boolit.lab.results.resampled import Estimate, PairedDifference, SplitComparison
from boolit.lab.results.scores import ScoreFormat
from boolit.lab.results.verdicts import SplitVerdict
from boolit.lab.runs import Metric, Record

FINAL = "final"  # the stage of a search in which the best settings are tried with many seeds


def coverage(comparison: SplitComparison) -> str:
    """What the intervals and p-values cover, as sentences."""
    splits, pairs = comparison.splits, len(comparison.pairs)
    return (
        f"Means over {splits.number} random splits, each with its own seed, tested on {splits.tested} of {splits.rows} rows. "
        "Intervals (95 %) and p cover the splits, the seeds and the test rows (Nadeau and Bengio's corrected variance); "
        f"differences are paired by split, and p is corrected for all {pairs} pair{'s' * (pairs != 1)} by Holm's method."
    )


def split_tables(
    verdict: SplitVerdict, title: str, parameters: Mapping[str, int], diverged: Mapping[str, int] | None = None
) -> list[ResultTable]:
    """The scores, each with its difference from the reference; and all pairs, where there are more than these."""
    tables = [_score_table(verdict, title, parameters, diverged or {})]
    if len(verdict.activations) > 2:
        tables.append(_pair_table(verdict, title))
    return tables


def _score_table(verdict: SplitVerdict, title: str, parameters: Mapping[str, int], diverged: Mapping[str, int]) -> ResultTable:
    comparison, reference, fmt = verdict.comparison, verdict.reference, verdict.score_format

    def against(other: str, write: Callable[[PairedDifference], ResultCell]) -> Callable[[str], ResultCell]:
        return lambda name: EMPTY if name == other else write(comparison.pair(name, other))

    columns: dict[str, Callable[[str], ResultCell]] = {
        metric_label(comparison.metric, split=False): lambda name: _estimate_cell(
            comparison.estimates[name], fmt, Marks(bold=name == verdict.leader), comparison.metric.percent
        ),
        f"minus {reference}": against(reference, lambda pair: _estimate_cell(pair.difference, fmt)),
        "p": against(reference, lambda pair: p_cell(pair.p_holm)),
        "p, guess": against(verdict.baseline, lambda pair: p_cell(pair.p_holm)),
        "parameters": lambda name: (
            ResultCell(str(parameters[name]), data={"": parameters[name]}) if name in parameters else EMPTY
        ),
    }
    if any(diverged.values()):
        columns["diverged"] = lambda name: ResultCell(str(diverged.get(name, "")), data={"": diverged.get(name, 0)})
    rows = tuple(ResultRow(name, map_of(name), tuple(write(name) for write in columns.values())) for name in comparison.ranking)
    bold = f"Bold: the {verdict.extreme} mean, which need not be significantly so."
    baseline = f"{verdict.baseline}: {verdict.baseline_text} (p, guess: against it), on the same test rows."
    diverging = "A diverged run counts as a guess."
    return ResultTable(title, tuple(columns), rows, (coverage(comparison), bold, f"{baseline} {diverging}"))


def _pair_table(verdict: SplitVerdict, title: str) -> ResultTable:
    comparison, fmt = verdict.comparison, verdict.score_format
    order = comparison.ranking
    pairs = [comparison.pair(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
    rows = tuple(
        ResultRow(
            f"{pair.first} − {pair.second}",
            "",
            (_estimate_cell(pair.difference, fmt, Marks(bold=pair.p_holm <= 0.05)), p_cell(pair.p_holm), p_cell(pair.p)),
        )
        for pair in pairs
    )
    note = "Intervals are of each difference alone; bold: significant after the correction (p ≤ 0.05)."
    return ResultTable(f"{title}: all pairs", ("difference [95 % interval]", "p", "p, uncorrected"), rows, (note,))


def _estimate_cell(found: Estimate, fmt: ScoreFormat, marks: Marks | None = None, share: bool = False) -> ResultCell:
    low, high = (max(0.0, found.low), min(1.0, found.high)) if share else (found.low, found.high)
    spread = f" [{fmt.number(low)}, {fmt.number(high)}]"
    data = {"": found.mean, " low": low, " high": high, " standard error": found.error}
    return ResultCell(fmt.number(found.mean), spread, marks or Marks(), data=data)


def searched(records: Sequence[Record]) -> list[str]:
    """The hyper-parameters that a search tried several values of."""
    values: dict[str, set[float]] = defaultdict(set)
    for record in records:
        for name, value in record.config.training.items():
            if isinstance(value, float):
                values[name].add(value)
    return [name for name, found in values.items() if len(found) > 1]


def search_table(records: Sequence[Record], metric: Metric, names: Sequence[str], title: str) -> ResultTable:
    """The settings of the final, the best of each activation first: a diverged run counts as the worst that did not."""
    settings: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.config.search == FINAL:
            setting = (repr(record.config.training.get(name)) for name in names)
            settings[(record.config.activation, *setting)].append(record)
    known = [value for group in settings.values() for record in group if math.isfinite(value := _value(record, metric))]
    worst = min(known, key=metric.merit, default=math.nan)
    fmt = ScoreFormat(metric.percent, 2 if metric.percent else 4)
    ranked: list[tuple[float, ResultRow]] = []
    for (spec, *_), group in settings.items():
        values = [value if math.isfinite(value := _value(record, metric)) else worst for record in group]
        diverged, mean, first = sum(record.state == "diverged" for record in group), fmean(values), group[0].config.training
        solved = sum(metric.solves(value) for value in values)
        cells = [
            ResultCell(fmt.number(mean), data={"": mean}),
            *([ResultCell(f"{solved}/{len(group)}", data={"": solved / len(group)})] if metric.solved is not None else []),
            ResultCell(str(len(group)), data={"": len(group)}),
            ResultCell(str(diverged), data={"": diverged}),
            *(ResultCell(f"{first[name]:.3g}", data={"": first[name]}) if name in first else EMPTY for name in names),
        ]
        ranked.append((metric.merit(mean), ResultRow(spec, map_of(spec), tuple(cells))))
    best = {spec: max(merit for merit, row in ranked if row.activation == spec) for spec, *_ in settings}
    rows = [row for _, row in sorted(ranked, key=lambda one: (-best[one[1].activation], one[1].activation, -one[0]))]
    solved_column = ["solved"] if metric.solved is not None else []
    columns = (metric_label(metric), *solved_column, "seeds", "diverged", *(name.replace("_", " ") for name in names))
    note = "Means over the seeds of each setting, on the rows that chose it: they say nothing about new rows."
    return ResultTable(title, columns, tuple(rows), (note, "A diverged run counts as the worst that did not."))


def _value(record: Record, metric: Metric) -> float:
    return record.metrics.get(metric.key, math.nan) if record.state == "finished" else math.nan
