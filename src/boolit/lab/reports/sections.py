"""What a report says of the runs in some folders, before it is a page: a section per study, comparison or search.

A folder's ``report/report.json`` has what its records do not say: what it is of, the command, the number of runs that are
planned. It is written when the work begins, so that a page can be made at any moment; a folder without one is reported, too.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write, read_bounded
from boolit.lab.reports.charts import ChartSet, run_charts, search_charts
from boolit.lab.reports.figures.results import MIDDLE_HALF, learning_curves, score_intervals
from boolit.lab.reports.figures.study import NamedFigure, runs_to_draw, study_figures
from boolit.lab.reports.tables import study_tables
from boolit.lab.reports.tables.model import ResultTable
from boolit.lab.reports.tables.splits import FINAL, search_table, searched, split_tables
from boolit.lab.results.names import metric_label, paper_name
from boolit.lab.results.resampled import ResampledSplits, compare_splits
from boolit.lab.results.run_table import RunTable
from boolit.lab.results.scores import metric_of, scores
from boolit.lab.results.statistics import ComparisonMethod, compare
from boolit.lab.results.store import Store
from boolit.lab.results.verdicts import SplitVerdict, verdict
from boolit.lab.runs import Record
from boolit.lab.studies import Plan

Kind = Literal["run", "compare", "transfer", "search"]
FILE = "report.json"
LARGEST = 2**26  # bytes of that file; 200,000 keys, the most a study has, are 4 MB
FEW = 8  # values that are listed
NO_TABLE = (
    "This folder does not say how its random splits were drawn, so only means are shown; `boolit compare` with the same "
    "options adds the comparison without training anything again."
)


class SplitScores(BaseModel):
    """The scores of a comparison on random splits, the baseline's included, and how the rows were split."""

    model_config = ConfigDict(frozen=True)

    scores: dict[str, list[float]]
    tested: int
    others: int
    reference: str
    baseline: str
    baseline_text: str
    diverged: dict[str, int] = {}


class ReportInfo(BaseModel):
    """What the records of a folder do not say; ``keys`` are of all runs that are known to belong to it, trials included."""

    model_config = ConfigDict(frozen=True)

    kind: Kind = "run"
    title: str = ""
    study: str = ""
    profile: str | None = None
    command: str = ""
    planned: int = 0
    keys: list[str] | None = None
    method: dict[str, Any] = {}
    paragraphs: list[str] = []
    splits: SplitScores | None = None

    @staticmethod
    def of_plan(kind: Kind, planned: Plan, method: ComparisonMethod | None = None) -> ReportInfo:
        """For a plan whose runs are all known, by the command that this process is, if it is one."""
        keys = sorted({run.key for run in planned.runs})
        return ReportInfo(
            kind=kind,
            title=planned.study.title,
            study=planned.name,
            profile=planned.profile,
            command=this_command(),
            planned=len(keys),
            keys=keys,
            method=vars(method) if method else {},
        )

    @staticmethod
    def read(folder: Path) -> ReportInfo | None:
        """What a folder says; None if it says nothing."""
        path = folder / "report" / FILE
        try:
            return ReportInfo.model_validate(json.loads(read_bounded(path, LARGEST, "delete it")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, ValidationError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path} is damaged or of another version; delete it: the runs are in the store") from None

    def write(self, folder: Path) -> None:
        """Writes it into a folder, so that it is there whole or not at all."""
        path = folder / "report" / FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as part:
                part.write_text(self.model_dump_json(exclude_defaults=True), encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path} ({error.strerror or error}); the runs are safe in the store") from error


def this_command() -> str:
    """The command line that this process is, as a shell takes it; nothing for another program."""
    program = Path(sys.argv[0] if sys.argv else "")
    is_module = program.name == "__main__.py" and program.parent.name == "boolit"
    return shlex.join(["boolit", *sys.argv[1:]]) if program.name in ("boolit", "boolit.exe") or is_module else ""


@dataclass(frozen=True)
class Section:
    """A part of a page: a verdict or, while runs are missing, ``unfinished`` instead; ``done`` of ``planned`` runs."""

    title: str
    kind: str
    verdict: str = ""
    unfinished: str = ""
    paragraphs: Sequence[str] = ()
    tables: Sequence[ResultTable] = ()
    charts: Sequence[ChartSet] = ()
    figures: Callable[[], Iterable[NamedFigure]] = tuple
    recipe: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None
    command: str = ""
    done: int = 0
    planned: int = 0


def unfinished_sentence(done: int, planned: int) -> str:
    """What replaces the verdict until every planned run is done; nothing once all are.

    Example:
        >>> unfinished_sentence(37, 320)
        'Unfinished: 37 of 320 runs are done; there is no verdict before all are.'
    """
    return f"Unfinished: {done} of {planned} runs are done; there is no verdict before all are." if done < planned else ""


def study_section(
    records: Sequence[Record], stores: Sequence[Store], info: ReportInfo, solved: float | None = None, done: int | None = None
) -> Section:
    """The section of a study, or of a transfer, whose runs differ by activation, size and seed."""
    records = runs = RunTable.of(records)
    metric, finished = metric_of(runs), len(runs) if done is None else done
    unfinished = unfinished_sentence(finished, info.planned)
    method = ComparisonMethod(**info.method)
    found = "" if unfinished else verdict(compare(scores(records, metric.key), metric, method, solved))
    tables = study_tables(records, method, solved, bool(unfinished))
    order = [row.activation for row in tables[0].rows]

    def figures() -> Iterator[NamedFigure]:
        for store in stores:
            own = runs if len(stores) == 1 else runs.with_keys(store.finished())
            if own:
                yield from study_figures(own, store, solved, order if unfinished else ())  # a ranking would be a verdict

    return replace(
        _section(info, records, finished),
        verdict=found,
        unfinished=unfinished,
        paragraphs=info.paragraphs,
        tables=tables,
        charts=[run_charts(records, metric, order)],
        figures=figures,
    )


def compare_section(records: Sequence[Record], info: ReportInfo, tried: Sequence[Record] = ()) -> Section:
    """The section of a comparison on a table: of its final runs, after the trials of learning rates."""
    records, tried = RunTable.of(records), RunTable.of(tried)
    done = len(records) + len(tried)
    unfinished = unfinished_sentence(done, info.planned)
    section = replace(_section(info, records or tried, done), unfinished=unfinished)
    if not records:
        return section
    metric = metric_of(records)
    if unfinished or info.splits is None:
        tables = study_tables(records, None, None, unfinished=True)
        charts = [run_charts(records, metric, [row.activation for row in tables[0].rows])]
        said = [] if unfinished else [NO_TABLE]
        return replace(section, paragraphs=said, tables=tables, charts=charts)
    own = info.splits
    splits = ResampledSplits(len(own.scores[own.baseline]), own.tested, own.others)
    found = SplitVerdict(compare_splits(own.scores, metric, splits), own.reference, own.baseline, own.baseline_text)
    parameters = {config.activation: config.parameters for config in records.shared_configs()}
    return replace(
        section,
        verdict=str(found),
        paragraphs=info.paragraphs,
        tables=split_tables(found, f"{info.title}: {metric_label(metric)}", parameters, own.diverged),
        charts=[run_charts(records, metric, found.comparison.ranking)],
        figures=lambda: split_figures(found, records),
    )


def split_figures(verdict: SplitVerdict, records: Sequence[Record]) -> Iterator[NamedFigure]:
    """The scores with their intervals, and the learning curves."""
    metric, found = verdict.comparison.metric, verdict.comparison.estimates
    shown = {name: (found[name].mean, found[name].low, found[name].high) for name in verdict.activations}
    words = metric.key.replace("_", " ")
    caption = f"{words} with 95 % intervals; the dashed line is {verdict.baseline_text}."
    drawn, omitted = runs_to_draw(RunTable.of(records))
    yield "scores", caption, score_intervals(shown, metric.key, (verdict.baseline, found[verdict.baseline].mean))
    caption = f"{words} by epoch, over the splits: the median and {MIDDLE_HALF}; a curve ends when half of them have stopped."
    yield "curves", caption + omitted, learning_curves(drawn, metric.key, order=verdict.activations)


def search_section(records: Sequence[Record], info: ReportInfo) -> Section:
    """The section of a search: the settings of its final, and every trial."""
    metric, names = metric_of(records), searched(records)
    unfinished = unfinished_sentence(len(records), info.planned)
    table = search_table(records, metric, names, f"{info.title}: settings of the final, by {metric_label(metric)}")
    best = {row.activation: row for row in reversed(table.rows)}
    chosen = ", ".join(
        f"{paper_name(spec)} ({best[spec].cells[0].text})" for spec in dict.fromkeys(r.activation for r in table.rows)
    )
    said = f"A setting was found for {chosen}: the mean {metric_label(metric)} of the rows that chose it, not of new rows."
    return replace(
        _section(info, records, len(records)),
        verdict="" if unfinished or not chosen else said,
        unfinished=unfinished,
        paragraphs=info.paragraphs,
        tables=[table] if table.rows else [],
        charts=[search_charts(records, metric, names)],
    )


def _section(info: ReportInfo, records: Sequence[Record], done: int) -> Section:
    """A section with what every kind has."""
    return Section(
        info.title,
        info.kind,
        recipe=recipe_of(records),
        environment=environment_of(records),
        command=info.command,
        done=done,
        planned=max(info.planned, done),
    )


def recipe_of(records: Sequence[Record]) -> dict[str, str]:
    """The records' configurations as names and values: what they share, and which values the rest has."""
    runs = RunTable.of(records)
    values: dict[str, dict[Any, None]] = defaultdict(dict)  # in their order
    for config in runs.shared_configs():
        for name, value in _flat("", config.to_dict()):
            values[name][value] = None
    if "seed" in values:
        own = runs.where(lambda config: "seed" in config.model_fields_set)
        values["seed"] = dict.fromkeys(own.columns["seed"].tolist())
    return {name: _listed(list(found)) for name, found in values.items()}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif value is not None:
            yield f"{prefix}{name}", _frozen(value)


def _frozen(value: Any) -> Any:
    return (
        tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else str(value) if isinstance(value, Mapping) else value
    )


def _listed(values: Sequence[Any]) -> str:
    texts = ["-".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values]
    if len(values) <= FEW or not all(isinstance(value, (int, float)) for value in values):
        return ", ".join(texts)
    return f"{min(values)} to {max(values)} ({len(values)} values)"


def environment_of(records: Sequence[Record]) -> dict[str, str]:
    """Where the records were made, how many runs there are, and how long they took."""
    runs = RunTable.of(records)
    values: dict[str, dict[str, None]] = defaultdict(dict)  # in their order
    _, first = np.unique(runs.columns["environment"], return_index=True)
    for place in runs.columns["environment"][np.sort(first)].tolist():
        for name, value in runs.environments[place].items():
            values[name][str(value)] = None
    seconds = sum(runs.columns["seconds"].tolist())
    return {"runs": str(len(runs)), "training": f"{seconds:.0f} s", **{name: ", ".join(own) for name, own in values.items()}}


def folder_sections(folders: Sequence[Path], stack: ExitStack) -> list[Section]:
    """The sections of everything in some folders; runs of one study are joined, whatever folder they are in.

    The stores stay open, for the figures, until the stack is closed.
    """
    studies: dict[tuple[str, str | None], list[tuple[Store, ReportInfo, RunTable]]] = defaultdict(list)
    sections: list[Section] = []
    for folder in folders:
        store = stack.enter_context(Store(folder, create=False))
        info, runs = ReportInfo.read(folder), store.table()
        if info is not None and info.keys is not None:
            runs = runs.with_keys(info.keys)
        name = folder.resolve().name
        kinds = info or ReportInfo(kind=_kind(runs), title=name)
        finals = runs.where(lambda config: config.search is None)
        if info is not None and info.keys is not None:  # a run that another study has trained counts as this one's
            finals = finals.with_entries(study=info.study, profile=info.profile)
        if kinds.kind == "search" and runs:
            sections.append(search_section(runs, kinds))
        elif kinds.kind == "compare":
            sections.append(compare_section(finals, kinds, runs.where(lambda config: config.search is not None)))
        elif finals:
            for key, own in finals.group_by(lambda config: (config.study, config.profile)).items():
                title = info.title if info else " ".join(filter(None, key)) or name
                planned = max(kinds.planned - (len(runs) - len(own)), 0)
                studies[key].append((store, kinds.model_copy(update={"title": title, "planned": planned}), own))
        else:
            said = unfinished_sentence(len(runs), max(kinds.planned, len(runs), 1))
            sections.append(replace(_section(kinds, runs, len(runs)), unfinished=said))
    return [*map(_joined_section, studies.values()), *sections]


def _kind(runs: RunTable) -> Kind:
    """Of a folder that does not say."""
    configs = runs.shared_configs()
    if any(config.profile == "compare" and config.split is not None for config in configs):
        return "compare"
    return "search" if any(str(config.search).startswith(("round", FINAL)) for config in configs) else "run"


def _joined_section(parts: Sequence[tuple[Store, ReportInfo, RunTable]]) -> Section:
    """One study, from one folder or several."""
    runs = RunTable.join([own for _, _, own in parts]).without_repeats()
    infos = [info for _, info, _ in parts]
    commands = "\n".join(dict.fromkeys(info.command for info in infos if info.command))
    planned = infos[0].planned if len(parts) == 1 else len({key for info in infos for key in info.keys or ()})
    joined = infos[0].model_copy(update={"planned": planned, "command": commands})
    return study_section(runs, [store for store, _, _ in parts], joined, metric_of(runs).solved)
