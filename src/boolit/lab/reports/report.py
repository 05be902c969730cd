"""The report of a study: tables in every format, figures, and one HTML page that holds them all."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from boolit.lab.errors import UserError
from boolit.lab.reports.figures import save
from boolit.lab.reports.study_figures import study_figures
from boolit.lab.reports.study_tables import study_tables
from boolit.lab.reports.tables import FORMATS, Table, render
from boolit.lab.results.statistics import Method, compare, metric_of, scores, verdict
from boolit.lab.results.store import Store
from boolit.lab.runs import Record

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
    """What was found, and where it was written; ``unfinished`` is what is said in place of a verdict while runs are missing."""

    verdict: str
    tables: tuple[Table, ...]
    page: Path
    files: tuple[Path, ...]
    unfinished: str = ""


def unfinished_sentence(done: int, planned: int) -> str:
    """What stands in place of a verdict until every planned run is done; nothing once all are.

    Example:
        >>> unfinished_sentence(37, 320)
        'Unfinished: 37 of 320 runs are done; there is no verdict before all are.'
    """
    return f"Unfinished: {done} of {planned} runs are done; there is no verdict before all are." if done < planned else ""


def write_report(
    records: Sequence[Record],
    store: Store,
    title: str,
    solved: float | None = None,
    method: Method | None = None,
    planned: int | None = None,
) -> Report:
    """Writes ``report/`` in the store's folder: the page, each table as Markdown, LaTeX and CSV, each figure as PNG.

    If more runs were ``planned`` than there are records, that is the first line, and there is no verdict.
    """
    metric = metric_of(records)
    unfinished = unfinished_sentence(len(records), planned or 0)
    found = () if unfinished else (verdict(compare(scores(records, metric.name), metric, method, solved)),)
    tables = study_tables(records, method, solved, bool(unfinished))
    return write_pages(records, store, title, found, tables, study_figures(records, store, solved), unfinished)


def write_pages(
    records: Sequence[Record],
    store: Store,
    title: str,
    found: Sequence[str],
    tables: Sequence[Table],
    figures: Iterable[tuple[str, str, Figure]],
    unfinished: str = "",
) -> Report:
    """Writes a report of these parts; ``found`` is the verdict and what else is to be said, a paragraph each."""
    folder = store.folder / "report"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [_write_tables(folder / f"tables.{SUFFIXES[name]}", name, tables) for name in SUFFIXES]
        pictures = []
        for name, caption, figure in figures:
            save(figure, folder / f"{name}.png", caption)
            pictures.append((folder / f"{name}.png", caption))
        page = folder / "report.html"
        page.write_text(_page(title, found, tables, pictures, records, unfinished), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write the report to {folder} ({error.strerror or error}); the runs are safe in the store"
        ) from error
    verdict_found = found[0] if found else ""
    return Report(verdict_found, tuple(tables), page, (*files, *(path for path, _ in pictures), page), unfinished)


def _write_tables(path: Path, name: str, tables: Sequence[Table]) -> Path:
    path.write_text("\n".join(render(table, name) for table in tables), encoding="utf-8")
    return path


def _page(
    title: str,
    found: Sequence[str],
    tables: Sequence[Table],
    pictures: Sequence[tuple[Path, str]],
    records: Sequence[Record],
    unfinished: str,
) -> str:
    body = [
        *([f'<p class="unfinished">{escape(unfinished)}</p>'] if unfinished else []),
        f"<h1>{escape(title)}</h1>",
        *(f'<p class="verdict">{escape(paragraph)}</p>' for paragraph in found[:1]),
        *(f"<p>{escape(paragraph)}</p>" for paragraph in found[1:]),
        *(f'<div class="wide">{FORMATS["html"](table)}</div>' for table in tables),
        *map(_picture, pictures),
        f"<footer>{escape(_origin(records))}</footer>",
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _picture(picture: tuple[Path, str]) -> str:
    """Embedded, so that the page is one file that can be sent."""
    path, caption = picture
    data = base64.b64encode(path.read_bytes()).decode()
    words = escape(caption)
    return f'<figure><img alt="{words}" src="data:image/png;base64,{data}"><figcaption>{words}</figcaption></figure>'


def _origin(records: Sequence[Record]) -> str:
    environments = sorted({", ".join(f"{name} {value}" for name, value in r.environment.items()) for r in records})
    seconds = sum(record.seconds for record in records)
    return f"{len(records)} runs, {seconds:.0f} s of training; {'; '.join(environments)}."
