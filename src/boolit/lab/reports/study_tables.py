"""Which tables there are to show of some records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from boolit.lab.reports._provenance import provenance
from boolit.lab.reports._table_columns import TESTS
from boolit.lab.reports._table_model import Cell, Marks, Table
from boolit.lab.reports._table_names import amounts, by_family, metric_label
from boolit.lab.reports.tables import comparison_table, score_table
from boolit.lab.results.statistics import BEST_SIZES, COVERAGE, Comparison, Method, compare, metric_of, scores, size_of
from boolit.lab.runs import JSON, Record

T = TypeVar("T")
Groups = Mapping[str, Sequence[Record]]


def study_tables(
    records: Sequence[Record], method: Method | None = None, solved: float | None = None, unfinished: bool = False
) -> list[Table]:
    """For each study and profile: its scores by depth, budget or width, whichever was swept, and its tests.

    ``solved`` is a threshold: the share of runs that reach it is shown. Of an ``unfinished`` study, scores are all there is:
    nothing in its tables says which is best.
    """
    studies = _grouped(records, _study_name)
    tables = [table for name, group in studies.items() for table in _tables(group, name, method, solved)]
    return [_without_verdict(table) for table in tables] if unfinished else tables


def _study_name(record: Record) -> str:
    study, profile = record.config.get("study"), record.config.get("profile")
    return f"{study} ({profile})" if profile else f"{study}"


def _without_verdict(table: Table) -> Table:
    """The table without tests, marks, shades, and the order of merit."""
    kept = [number for number, name in enumerate(table.columns) if name not in TESTS]
    rows = (
        replace(row, cells=tuple(_plain(row.cells[number]) for number in kept))
        for row in sorted(table.rows, key=lambda row: by_family(row.activation))
    )
    columns, notes = tuple(table.columns[number] for number in kept), (table.notes[0], COVERAGE)
    return Table(f"Unfinished: {table.title}", columns, tuple(rows), notes)


def _plain(cell: Cell) -> Cell:
    data = {name: value for name, value in cell.data.items() if name != " marks"}
    return replace(cell, marks=Marks(), shade=None, data=data)


def _tables(records: Sequence[Record], name: str, method: Method | None, solved: float | None) -> list[Table]:
    metric = metric_of(records)
    title = "; ".join(filter(None, (f"{name}: {metric_label(metric)}", provenance(records))))

    def compared(group: Sequence[Record]) -> Comparison:
        return compare(scores(group, metric.name), metric, method, solved)

    # Depths are compared apart, as in tab:mlp-covtype; sizes compete, and the best one of each activation is tested.
    by_depth = _by_depth(records)
    tests = [
        comparison_table(compared(group), f"{title}, {depth}" if len(by_depth) > 1 else title)
        for depth, group in by_depth.items()
    ]
    swept, groups = ("depth", by_depth) if len(by_depth) > 1 else _sizes(records)
    several = len({(r.config["activation"], size_of(r)) for r in records}) > len({r.config["activation"] for r in records})
    tests = [_with_notes(table, *([BEST_SIZES] if several else []), COVERAGE) for table in tests]
    if not groups:
        return tests
    scored = score_table({column: compared(group) for column, group in groups.items()}, f"{title} by {swept}")
    return [_with_notes(scored, COVERAGE), *tests]


def _with_notes(table: Table, *notes: str) -> Table:
    return replace(table, notes=(*table.notes, *notes))


def _by_depth(records: Sequence[Record]) -> Groups:
    """The records by number of hidden layers; those of networks without any are compared with each of the others."""
    linear = [record for record in records if record.config.get("depth") == 0]
    groups = _grouped([r for r in records if r.config.get("depth") != 0], lambda r: f"depth {r.config.get('depth')}")
    return {depth: [*group, *linear] for depth, group in groups.items()} or {"depth 0": linear}


def _sizes(records: Sequence[Record]) -> tuple[str, Groups]:
    """The records by parameter budget or by width, whichever was swept; nothing if every activation has one size."""
    by_budget = _grouped(records, lambda r: size_of(r) if r.config.get("budget") is not None else 0)
    if len(by_budget) > 1:
        names = amounts(by_budget)
        return "parameters", {names[size]: by_budget[size] for size in sorted(by_budget)}
    by_width = _grouped(records, lambda r: _width(r.config.get("width")))
    widths = _grouped(records, lambda r: str(r.config["activation"]))
    if any(len({_width(r.config.get("width")) for r in group}) > 1 for group in widths.values()):
        return "width", {"-".join(map(str, width)): by_width[width] for width in sorted(by_width)}
    return "", {}


def _width(width: JSON) -> tuple[int, ...]:
    return tuple(int(w) for w in width if isinstance(w, int)) if isinstance(width, (list, tuple)) else ()


def _grouped(records: Sequence[Record], by: Callable[[Record], T]) -> dict[T, list[Record]]:
    groups: dict[T, list[Record]] = defaultdict(list)
    for record in records:
        groups[by(record)].append(record)
    return dict(groups)
