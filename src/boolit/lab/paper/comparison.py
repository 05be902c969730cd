"""A table of the paper, alone or with our own results beside its numbers, and which of our runs belong in which column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from scipy import stats

from boolit.errors import UserError
from boolit.lab.models import family
from boolit.lab.paper import PrintedCell, table
from boolit.lab.reports.tables import provenance
from boolit.lab.reports.tables.model import Marks, ResultCell, ResultRow, ResultTable
from boolit.lab.results.names import map_of
from boolit.lab.results.scores import Score, ScoreSummary, metric_of, scores, summarise
from boolit.lab.results.statistics import COVERAGE
from boolit.lab.runs import Metric, Record

LINEAR = "linear"
FACTORS = {"": 1.0, "k": 1e3, "M": 1e6}
NEAR = 1.25  # a column "65k" takes sizes up to this many times larger or smaller
# The columns of the transfer tables, and our names of these datasets.
DATASETS = {
    "Cal101": "caltech101",
    "CIFAR10": "cifar10",
    "CIFAR100": "cifar100",
    "Flowers": "flowers",
    "StfCars": "cars",
    "STL-10": "stl10",
    "SVHN": "svhn",
}
# Columns that are metrics of the same runs: the configurations of I-RAVEN, and how many guesses count.
METRICS = {
    "Acc": "accuracy",
    "Center": "accuracy_center_single",
    "2×2G": "accuracy_distribute_four",
    "3×3G": "accuracy_distribute_nine",
    "O-IC": "accuracy_in_center_single_out_center_single",
    "O-IG": "accuracy_in_distribute_four_out_center_single",
    "L-R": "accuracy_left_center_single_right_center_single",
    "U-D": "accuracy_up_center_single_down_center_single",
    "Top-1": "auc",
    "Top-2": "auc2",
    "Top-3": "auc3",
}
# Options of a run's model, where tables differ in nothing else.
MODELS = {
    "tab:transfer-head-big": {"sizes": "matched"},
    "tab:transfer-extra": {"sizes": "matched"},
    "tab:transfer-head-512": {"sizes": "equal"},
    "tab:tmn-og": {"name": "tmn", "variant": "tmn"},
    "tab:tmnx": {"name": "tmn", "variant": "tmnx"},
    "tab:sran": {"name": "sran"},
}
Ours = Mapping[tuple[str, str], ScoreSummary]


def paper_table(label: str, records: Sequence[Record] = ()) -> ResultTable:
    """The paper's table; with records, our mean follows each of its columns, and notes say how well the two agree."""
    cells = table(label)
    columns = list(dict.fromkeys(cell.column for cell in cells))
    ours = _ours(label, columns, records) if records else {}
    if records and not ours:
        raise UserError(f"none of these runs belongs in {label}: it has {', '.join(columns)}; choose the folder of its study")
    shown = [column for column in columns if not ours or any(key[1] == column for key in ours)]
    headings = [heading for column in shown for heading in ([column, f"{column}, ours"] if ours else [column])]
    rows = [_row(spec, shown, cells, ours) for spec in dict.fromkeys(cell.activation for cell in cells)]
    notes = _notes(shown, cells, ours) + _sources(records) + _coverage(ours)
    return ResultTable(f"{label} of the paper", tuple(headings), tuple(rows), tuple(notes))


def _sources(records: Sequence[Record]) -> list[str]:
    """Our studies, which may have other data than the paper's, and their provenance."""
    named = (record.config for record in records if record.config.study)
    studies = sorted({f"{config.study} ({config.profile or 'no profile'})" for config in named})
    said = [", ".join(studies)] if studies else []
    said += [provenance(records)] if provenance(records) else []
    return [f"Ours: {'; '.join(said)}."] if said else []


def _coverage(ours: Ours) -> list[str]:
    """The number of runs behind our numbers, and what their ± covers."""
    numbers = sorted({summary.n for summary in ours.values()})
    return [f"Ours: n = {', '.join(map(str, numbers))}. {COVERAGE}"] if numbers else []


def _ours(label: str, columns: Sequence[str], records: Sequence[Record]) -> Ours:
    """Our best summary for each cell: the best of the sizes that share a column, as in the paper."""
    found: dict[tuple[str, str], ScoreSummary] = {}
    for row, column, metric, score in in_columns(label, columns, records):
        summary, key = _in_percent(summarise(score, metric), metric), (row, column)
        if key not in found or metric.merit(summary.mean) > metric.merit(found[key].mean):
            found[key] = summary
    return found


def _in_percent(summary: ScoreSummary, metric: Metric) -> ScoreSummary:
    scale = 100 if metric.percent else 1
    return ScoreSummary.from_standard_error(
        summary.activation, scale * summary.mean, scale * summary.standard_error, summary.n, summary.size
    )


def _row(spec: str, columns: Sequence[str], cells: Sequence[PrintedCell], ours: Ours) -> ResultRow:
    printed = {cell.column: cell for cell in cells if cell.activation == spec}
    entries: list[ResultCell] = []
    for column in columns:
        entries.append(_paper_cell(printed.get(column)))
        if ours:
            entries.append(_our_cell(ours.get((spec, column))))
    return ResultRow(spec, map_of(spec), tuple(entries))


def _paper_cell(cell: PrintedCell | None) -> ResultCell:
    if cell is None:
        return ResultCell("")
    marks = Marks(cell.bold, cell.underlined, cell.italic)
    return ResultCell(f"{cell.mean:.2f}", _spread(cell.standard_error), marks, data={"": cell.mean, "se": cell.standard_error})


def _our_cell(summary: ScoreSummary | None) -> ResultCell:
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


# Which runs belong in which column, and by which metric.


def in_columns(label: str, columns: Sequence[str], records: Sequence[Record]) -> Iterator[tuple[str, str, Metric, Score]]:
    """The scores that belong in a table, each with its row and column: a dataset, a metric, or a size or depth."""
    metric = metric_of(records)
    for suffix, own in _networks(label, [record for record in records if _of_model(record, MODELS.get(label, {}))]):
        for column in columns:
            for column_metric, score in _in_column(column, own, metric):
                yield f"{_row_name(score)}{suffix}", column, column_metric, score


def _in_column(column: str, records: Sequence[Record], metric: Metric) -> Iterator[tuple[Metric, Score]]:
    if column in DATASETS:
        yield from ((metric, score) for score in scores(_encoded(records, DATASETS[column]), metric.key))
    elif column in METRICS:
        own = Metric(name=METRICS[column])
        yield from ((own, score) for score in scores([r for r in records if own.key in r.metrics], own.key))
    else:
        found = scores(records, metric.key)
        yield from ((metric, score) for score in found if _belongs(column, score.size, score.depth))


def _row_name(score: Score) -> str:
    """The row of a score: a network without hidden layers is linear there, and shares are equal where they can be."""
    if score.depth == 0 and score.activation == "identity":
        return LINEAR
    return score.activation.removesuffix("u") if score.activation.endswith("_pu") else score.activation


def _networks(label: str, records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """The networks with their own rows, and the suffix of an activation's name there."""
    if label != "tab:sran":
        return [("", list(records))]
    published = [record for record in records if _of_model(record, {"layout": "published"})]
    return [("", [record for record in records if record not in published]), (" (base SRAN)", published)]


def _of_model(record: Record, wanted: Mapping[str, str]) -> bool:
    if not wanted or not record.config.model:
        return not wanted
    return all(getattr(family(record.config.model), name, None) == value for name, value in wanted.items())


def _encoded(records: Sequence[Record], dataset: str) -> list[Record]:
    """The runs whose samples are features of a dataset's images."""
    return [record for record in records if record.config.data.get("of", {}).get("name") == dataset]


def _belongs(column: str, size: int, depth: int) -> bool:
    """Whether runs of a size and depth belong in a column: a number of layers, or of parameters.

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
