"""A table of the paper, alone or with our own results beside its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from scipy import stats

from boolit.lab.errors import UserError
from boolit.lab.paper import PrintedCell, table
from boolit.lab.reports._provenance import provenance
from boolit.lab.reports._table_model import Cell, Marks, Row, Table
from boolit.lab.reports._table_names import map_of
from boolit.lab.results.statistics import Metric, Score, Summary, metric_of, scores, summarise
from boolit.lab.runs import Record

FACTORS = {"": 1.0, "k": 1e3, "M": 1e6}
NEAR = 1.25  # a column "65k" takes sizes up to so many times larger or smaller
# The columns of the transfer tables, and what we call these datasets.
DATASETS = {
    "Cal101": "caltech101",
    "CIFAR10": "cifar10",
    "CIFAR100": "cifar100",
    "Flowers": "flowers",
    "StfCars": "cars",
    "STL-10": "stl10",
    "SVHN": "svhn",
}
LINEAR = "linear"
Ours = Mapping[tuple[str, str], Summary]


def paper_table(label: str, records: Sequence[Record] = ()) -> Table:
    """The paper's table; with records, our mean follows each of its columns, and notes say how well the two agree."""
    cells = table(label)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    ours = _ours(cells, records) if records else {}
    if records and not ours:
        raise UserError(f"none of these runs belongs into {label}: it has {', '.join(columns)}; choose the folder of its study")
    shown = [column for column in columns if not ours or any(key[1] == column for key in ours)]
    headings = [heading for column in shown for heading in ([column, f"{column}, ours"] if ours else [column])]
    rows = [_row(spec, shown, cells, ours) for spec in dict.fromkeys(cell.activation for cell in cells)]
    notes = _notes(shown, cells, ours) + ([f"Ours: {provenance(records)}."] if provenance(records) else [])
    return Table(f"{label} of the paper", tuple(headings), tuple(rows), tuple(notes))


def _ours(cells: Sequence[PrintedCell], records: Sequence[Record]) -> Ours:
    """Our best summary for each cell: sizes that a column does not tell apart compete, as in the paper."""
    metric = metric_of(records)
    found: dict[tuple[str, str], Summary] = {}
    for column, score in _in_columns(list(dict.fromkeys(cell.column for cell in cells)), records, metric):
        # A network without hidden layers has no activation: the paper calls it linear.
        row = LINEAR if score.depth == 0 and score.activation == "identity" else score.activation
        summary, key = _scaled(summarise(score, metric), metric), (row, column)
        if key not in found or metric.merit(summary.mean) > metric.merit(found[key].mean):
            found[key] = summary
    return found


def _in_columns(columns: Sequence[str], records: Sequence[Record], metric: Metric) -> Iterator[tuple[str, Score]]:
    """The scores that belong into the table, each with its column: of a dataset, or of a size or depth."""
    if not any(column in DATASETS for column in columns):
        found = [
            (score, [name for name in columns if _belongs(name, score.size, score.depth)])
            for score in scores(records, metric.name)
        ]
        yield from ((names[0], score) for score, names in found if names)
        return
    for column in columns:
        own = [record for record in records if _encoded(record) == DATASETS.get(column)]
        yield from ((column, score) for score in scores(own, metric.name))


def _encoded(record: Record) -> str:
    """The dataset whose pictures a run's samples are features of."""
    data = record.config.get("data")
    of = data.get("of") if isinstance(data, Mapping) else None
    return str(of.get("name")) if isinstance(of, Mapping) else ""


def _scaled(summary: Summary, metric: Metric) -> Summary:
    scale = 100 if metric.percent else 1
    return Summary.printed(summary.activation, scale * summary.mean, scale * summary.standard_error, summary.n, summary.size)


def _belongs(column: str, size: int, depth: int) -> bool:
    """Whether runs of a size and depth stand under a column: a number of layers, or of parameters.

    Example:
        >>> _belongs("65k", 65536, 2), _belongs("2", 300000, 2), _belongs("4M", 65536, 2)
        (True, True, False)
    """
    number = re.fullmatch(r"([\d.]+)([kM]?)", column)
    if number is None:
        return False
    value = float(number[1]) * FACTORS[number[2]]
    if not number[2]:
        return depth == value
    return 1 / NEAR <= size / value <= NEAR


def _row(spec: str, columns: Sequence[str], cells: Sequence[PrintedCell], ours: Ours) -> Row:
    printed = {cell.column: cell for cell in cells if cell.activation == spec}
    entries: list[Cell] = []
    for column in columns:
        entries.append(_printed(printed.get(column)))
        if ours:
            entries.append(_found(ours.get((spec, column))))
    return Row(spec, map_of(spec), tuple(entries))


def _printed(cell: PrintedCell | None) -> Cell:
    if cell is None:
        return Cell("")
    marks = Marks(cell.bold, cell.underlined, cell.italic)
    return Cell(f"{cell.mean:.2f}", _spread(cell.standard_error), marks, data={"": cell.mean, "se": cell.standard_error})


def _found(summary: Summary | None) -> Cell:
    if summary is None:
        return Cell("")
    data = {"": summary.mean, "se": summary.standard_error, "n": summary.n}
    return Cell(f"{summary.mean:.2f}", _spread(summary.standard_error), data=data)


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
