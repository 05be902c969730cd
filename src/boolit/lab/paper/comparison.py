"""A table of the paper, alone or with our own results beside its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scipy import stats

from boolit.lab.common.errors import UserError
from boolit.lab.paper import PrintedCell, table
from boolit.lab.paper.columns import in_columns
from boolit.lab.reports.names import map_of
from boolit.lab.reports.tables import provenance
from boolit.lab.reports.tables.model import Marks, ResultCell, ResultRow, ResultTable
from boolit.lab.results.statistics import COVERAGE, Metric, ScoreSummary, summarise
from boolit.lab.runs import Record

Ours = Mapping[tuple[str, str], ScoreSummary]


def paper_table(label: str, records: Sequence[Record] = ()) -> ResultTable:
    """The paper's table; with records, our mean follows each of its columns, and notes say how well the two agree."""
    cells = table(label)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    ours = _ours(label, columns, records) if records else {}
    if records and not ours:
        raise UserError(f"none of these runs belongs into {label}: it has {', '.join(columns)}; choose the folder of its study")
    shown = [column for column in columns if not ours or any(key[1] == column for key in ours)]
    headings = [heading for column in shown for heading in ([column, f"{column}, ours"] if ours else [column])]
    rows = [_row(spec, shown, cells, ours) for spec in dict.fromkeys(cell.activation for cell in cells)]
    notes = _notes(shown, cells, ours) + _whose(records) + _cover(ours)
    return ResultTable(f"{label} of the paper", tuple(headings), tuple(rows), tuple(notes))


def _whose(records: Sequence[Record]) -> list[str]:
    """Which studies our numbers are of, as these may have other data than the paper's, and what else they rest on."""
    named = (record.config for record in records if "study" in record.config)
    studies = sorted({f"{config['study']} ({config.get('profile') or 'no profile'})" for config in named})
    said = [", ".join(studies)] if studies else []
    said += [provenance(records)] if provenance(records) else []
    return [f"Ours: {'; '.join(said)}."] if said else []


def _cover(ours: Ours) -> list[str]:
    """How many runs are behind our numbers, and what their ± covers."""
    numbers = sorted({summary.n for summary in ours.values()})
    return [f"Ours: n = {', '.join(map(str, numbers))}. {COVERAGE}"] if numbers else []


def _ours(label: str, columns: Sequence[str], records: Sequence[Record]) -> Ours:
    """Our best summary for each cell: sizes that a column does not tell apart compete, as in the paper."""
    found: dict[tuple[str, str], ScoreSummary] = {}
    for row, column, metric, score in in_columns(label, columns, records):
        summary, key = _scaled(summarise(score, metric), metric), (row, column)
        if key not in found or metric.merit(summary.mean) > metric.merit(found[key].mean):
            found[key] = summary
    return found


def _scaled(summary: ScoreSummary, metric: Metric) -> ScoreSummary:
    scale = 100 if metric.percent else 1
    return ScoreSummary.from_standard_error(
        summary.activation, scale * summary.mean, scale * summary.standard_error, summary.n, summary.size
    )


def _row(spec: str, columns: Sequence[str], cells: Sequence[PrintedCell], ours: Ours) -> ResultRow:
    printed = {cell.column: cell for cell in cells if cell.activation == spec}
    entries: list[ResultCell] = []
    for column in columns:
        entries.append(_printed(printed.get(column)))
        if ours:
            entries.append(_found(ours.get((spec, column))))
    return ResultRow(spec, map_of(spec), tuple(entries))


def _printed(cell: PrintedCell | None) -> ResultCell:
    if cell is None:
        return ResultCell("")
    marks = Marks(cell.bold, cell.underlined, cell.italic)
    return ResultCell(f"{cell.mean:.2f}", _spread(cell.standard_error), marks, data={"": cell.mean, "se": cell.standard_error})


def _found(summary: ScoreSummary | None) -> ResultCell:
    if summary is None:
        return ResultCell("")
    data = {"": summary.mean, "se": summary.standard_error, "n": summary.n}
    return ResultCell(f"{summary.mean:.2f}", _spread(summary.standard_error), data=data)


def _spread(standard_error: float) -> str:
    return "" if math.isnan(standard_error) else f" ± {standard_error:.2f}"


def _notes(columns: Sequence[str], cells: Sequence[PrintedCell], ours: Ours) -> list[str]:
    numbers = sorted({cell.n for cell in cells})
    notes = [f"Mean ± standard error, n = {', '.join(map(str, numbers))} in the paper. Marks as printed."]
    for column in columns:
        both = [
            (c.mean, ours[c.activation, column].mean) for c in cells if c.column == column and (c.activation, column) in ours
        ]
        if both:
            notes.append(f"{column}: {_agreement(both)}")
    return notes


def _agreement(both: Sequence[tuple[float, float]]) -> str:
    """How far apart, and whether in the same order.

    Example:
        >>> _agreement([(90.0, 90.5), (95.0, 94.0), (97.0, 96.5)])
        'ours − paper from −1.00 to +0.50, mean −0.33; rank correlation 1.00 over 3 activations.'
    """
    gaps = [ours - theirs for theirs, ours in both]
    mean = sum(gaps) / len(gaps)
    text = f"ours − paper from {min(gaps):+.2f} to {max(gaps):+.2f}, mean {mean:+.2f}".replace("-", "−")
    if len(both) < 3:
        return f"{text}."
    rho = float(stats.spearmanr(*zip(*both, strict=True)).statistic)
    return f"{text}; rank correlation {rho:.2f} over {len(both)} activations.".replace("-", "−")
