"""The report of a study or a comparison: tables in every format, figures, and one HTML page with all of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from boolit.lab.common.errors import UserError
from boolit.lab.reports.figures.results import MIDDLE_HALF, learning_curves, score_intervals
from boolit.lab.reports.figures.study import NamedFigure, study_figures
from boolit.lab.reports.figures.style import save
from boolit.lab.reports.tables import FORMATS, render, study_tables
from boolit.lab.reports.tables.model import EMPTY, Marks, ResultCell, ResultRow, ResultTable, p_cell
from boolit.lab.results.names import map_of, metric_label
from boolit.lab.results.resampled import Estimate, PairedDifference, SplitComparison
from boolit.lab.results.scores import ScoreFormat, metric_of, scores
from boolit.lab.results.statistics import ComparisonMethod, compare
from boolit.lab.results.store import Store
from boolit.lab.results.verdicts import SplitVerdict, verdict
from boolit.lab.runs import Record
from boolit.lab.studies import Plan

SUFFIXES = {"markdown": "md", "latex": "tex", "csv": "csv"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}caption{text-align:left;font-weight:600;padding:.3rem 0}"
    "th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}th[scope=row]{text-align:left}"
    ".unfinished{font-weight:600;border-left:4px solid #d55e00;padding-left:.8rem}"
    ".verdict{font-size:1.15rem;border-left:4px solid #0072b2;padding-left:.8rem}"
    ".notes,figcaption,footer{color:#555;font-size:.85rem}"
    "figure{margin:1.5rem 0}img{max-width:100%}div.wide{overflow-x:auto}"
)


@dataclass(frozen=True)
class Report:
    """What was found, and where it was written; ``unfinished`` replaces the verdict while runs are missing.

    ``verdict`` is a sentence, ``tables`` are in their order, ``page`` is the HTML file, and ``files`` all that was written.
    Without any runs there is no page.

    Example:
        >>> from boolit.lab import Report
        >>> report = Report("", (), None, (), "Unfinished: 0 of 320 runs are done; there is no verdict before all are.")
        >>> report.to_json()
        {'tables': {}, 'files': []}
    """

    verdict: str
    tables: tuple[ResultTable, ...]
    page: Path | None
    files: tuple[Path, ...]
    unfinished: str = ""

    def to_json(self) -> dict[str, Any]:
        """The tables as CSV by their titles, and the files."""
        tables = {table.title: render(table, "csv") for table in self.tables}
        return {"tables": tables, "files": [str(path) for path in self.files]}


def unfinished_sentence(done: int, planned: int) -> str:
    """What replaces the verdict until every planned run is done; nothing once all are.

    Example:
        >>> unfinished_sentence(37, 320)
        'Unfinished: 37 of 320 runs are done; there is no verdict before all are.'
    """
    return f"Unfinished: {done} of {planned} runs are done; there is no verdict before all are." if done < planned else ""


def report_study(plan: Plan, store: Store, method: ComparisonMethod | None = None) -> Report:
    """Writes the report of those of a plan's runs that are in the store, into its folder; nothing if there are none.

    Args:
        plan: the study's, which has its title, its metric and the runs there should be.
        store: what has been trained.
        method: how activations are compared; the paper's way unless given.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Store, load_study, plan, report_study
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     report_study(plan(load_study("parity"), seeds=3), store).unfinished
        'Unfinished: 0 of 24 runs are done; there is no verdict before all are.'
    """
    records, planned = store.records_of(plan.runs), len({run.key for run in plan.runs})
    if not records:
        return Report("", (), None, (), unfinished_sentence(0, planned))
    return write_report(records, store, plan.study.title, plan.study.metric.solved, method, planned)


def write_report(
    records: Sequence[Record],
    store: Store,
    title: str,
    solved: float | None = None,
    method: ComparisonMethod | None = None,
    planned: int | None = None,
) -> Report:
    """Writes ``report/`` in the store's folder: the page, each table as Markdown, LaTeX and CSV, each figure as PNG.

    If more runs were ``planned`` than there are records, that is the first line, and there is no verdict.
    """
    metric = metric_of(records)
    unfinished = unfinished_sentence(len(records), planned or 0)
    found = () if unfinished else (verdict(compare(scores(records, metric.key), metric, method, solved)),)
    tables = study_tables(records, method, solved, bool(unfinished))
    order = [row.activation for row in tables[0].rows] if unfinished else ()  # a ranking would be a verdict
    return write_page(records, store, title, found, tables, study_figures(records, store, solved, order), unfinished)


def write_page(
    records: Sequence[Record],
    store: Store,
    title: str,
    found: Sequence[str],
    tables: Sequence[ResultTable],
    figures: Iterable[NamedFigure],
    unfinished: str = "",
) -> Report:
    """Writes a report of these parts; ``found`` is the verdict and further paragraphs."""
    folder = store.folder / "report"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"tables.{suffix}" for suffix in SUFFIXES.values()]
        for name, path in zip(SUFFIXES, files, strict=True):
            path.write_text("\n".join(render(table, name) for table in tables), encoding="utf-8")
        images = []
        for name, caption, figure in figures:
            save(figure, folder / f"{name}.png", caption)
            images.append((folder / f"{name}.png", caption))
        page = folder / "report.html"
        page.write_text(_html_page(title, found, tables, images, records, unfinished), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write the report to {folder} ({error.strerror or error}); the runs are safe in the store"
        ) from error
    files += [*(path for path, _ in images), page]
    return Report(found[0] if found else "", tuple(tables), page, tuple(files), unfinished)


def _html_page(
    title: str,
    found: Sequence[str],
    tables: Sequence[ResultTable],
    images: Sequence[tuple[Path, str]],
    records: Sequence[Record],
    unfinished: str,
) -> str:
    body = [
        *([f'<p class="unfinished">{escape(unfinished)}</p>'] if unfinished else []),
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="verdict">{escape(paragraph)}</p>' for paragraph in found[:1]),
        *(f"<p>{escape(paragraph)}</p>" for paragraph in found[1:]),
        *(f'<div class="wide">{FORMATS["html"](table)}</div>' for table in tables),
        *map(_html_image, images),
        f"<footer>{escape(_origin(records))}</footer>",
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _html_image(image: tuple[Path, str]) -> str:
    """Embedded, so that the page is a single file."""
    path, caption = image
    data = base64.b64encode(path.read_bytes()).decode()
    words = escape(caption)
    return f'<figure><img alt="{words}" src="data:image/png;base64,{data}"><figcaption>{words}</figcaption></figure>'


def _origin(records: Sequence[Record]) -> str:
    environments = sorted({", ".join(f"{name} {value}" for name, value in r.environment.items()) for r in records})
    seconds = sum(record.seconds for record in records)
    return f"{len(records)} runs, {seconds:.0f} s of training; {'; '.join(environments)}."


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


def split_figures(verdict: SplitVerdict, records: Sequence[Record]) -> Iterator[NamedFigure]:
    """The scores with their intervals, and the learning curves."""
    metric, found = verdict.comparison.metric, verdict.comparison.estimates
    shown = {name: (found[name].mean, found[name].low, found[name].high) for name in verdict.activations}
    words = metric.key.replace("_", " ")
    caption = f"{words} with 95 % intervals; the dashed line is {verdict.baseline_text}."
    yield "scores", caption, score_intervals(shown, metric.key, (verdict.baseline, found[verdict.baseline].mean))
    caption = f"{words} by epoch, over the splits: the median and {MIDDLE_HALF}; a curve ends when half of them have stopped."
    yield "curves", caption, learning_curves(records, metric.key, order=verdict.activations)


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
