"""The report of a study, a comparison, a search or a benchmark as one HTML page, with its tables and figures beside it.

The page asks nobody for anything: styles, scripts, data and pictures are inside, and its content policy forbids every
connection. (The page that `boolit.lab.reports.server` serves may ask that server, for what is new.)
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from boolit.errors import UserError
from boolit.lab.common.files import atomic_write
from boolit.lab.reports.charts import DASHES, ChartSet, vega_script
from boolit.lab.reports.figures.style import save, style
from boolit.lab.reports.sections import Kind, ReportInfo, Section, study_section, unfinished_sentence
from boolit.lab.reports.tables import FORMATS, render
from boolit.lab.reports.tables.model import ResultTable
from boolit.lab.results.names import html_name, paper_name
from boolit.lab.results.statistics import ComparisonMethod
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.studies import Plan

SUFFIXES = {"markdown": "md", "latex": "tex", "csv": "csv"}
CHARTED = ("curves", "sizes", "solved", "scores")  # figures of what the page's own charts and tables show
NONE, SELF = "'none'", "'self'"  # in a content policy
ALONE = "Made by boolit. Everything is in this one file: it connects to nothing."
LIVE = "Served by boolit watch, to this machine only; it updates by itself while runs are added."
Image = tuple[Path, str]  # a file and its caption


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


def report_study(plan: Plan, store: Store, method: ComparisonMethod | None = None, kind: Kind = "run") -> Report:
    """Writes the report of those of a plan's runs that are in the store, into its folder; nothing if there are none.

    Args:
        plan: the study's, which has its title, its metric and the runs there should be.
        store: what has been trained.
        method: how activations are compared; the paper's way unless given.
        kind: which command asked for it.

    Example:
        >>> import tempfile
        >>> from boolit.lab import Store, load_study, plan, report_study
        >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        ...     report_study(plan(load_study("parity"), seeds=3), store).unfinished
        'Unfinished: 0 of 24 runs are done; there is no verdict before all are.'
    """
    records, info = store.table_of(plan.runs), ReportInfo.of_plan(kind, plan, method)
    if not records:
        return Report("", (), None, (), unfinished_sentence(0, info.planned))
    return write_section(study_section(records, [store], info, plan.study.metric.solved), store.folder)


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
    info = ReportInfo(title=title, planned=planned or 0, method=vars(method) if method else {})
    return write_section(study_section(records, [store], info, solved), store.folder)


def write_section(section: Section, folder: Path) -> Report:
    """Writes the report of one section into a folder's ``report/``, with its tables and figures as files."""
    folder = folder / "report"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"tables.{suffix}" for suffix in SUFFIXES.values()]
        for name, path in zip(SUFFIXES, files, strict=True):
            path.write_text("\n".join(render(table, name) for table in section.tables), encoding="utf-8")
        images = save_figures(section, folder)
        page = folder / "report.html"
        embedded = [image for image in images if image[0].stem not in CHARTED]
        write_page(html_page([section], [embedded]), page)
    except OSError as error:
        raise UserError(
            f"cannot write the report to {folder} ({error.strerror or error}); the runs are safe in the store"
        ) from error
    files += [*(path for path, _ in images), page]
    return Report(section.verdict, tuple(section.tables), page, tuple(files), section.unfinished)


def save_figures(section: Section, folder: Path) -> list[Image]:
    """Writes the figures of a section as PNG."""
    images = []
    for name, caption, figure in section.figures():
        save(figure, folder / f"{name}.png", caption)
        images.append((folder / f"{name}.png", caption))
    return images


def write_page(text: str, path: Path) -> None:
    """Writes a page so that it is there whole or not at all; who reads it meanwhile has the one before."""
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def html_page(sections: Sequence[Section], images: Sequence[Sequence[Image]] = (), live: str = "") -> str:
    """The page of some sections, with the pictures of each; a live one, of this state, asks its server for later ones."""
    style, script, vega = _asset("page.css"), _asset("page.js"), vega_script()
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (vega, script)
    )
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {SELF if live else NONE}; base-uri 'none'; form-action 'none'"
    )
    title = sections[0].title if len(sections) == 1 else f"{len(sections)} results: {', '.join(s.title for s in sections)}"
    pictures = [*images, *([()] * (len(sections) - len(images)))]
    body = [
        '<a class="skip" href="#main">Skip to the results</a>',
        f'<header><p class="brand">boolit</p><h1>{escape(title)}</h1>',
        '<button type="button" id="theme" hidden>Dark</button></header>',
        _navigation(sections),
        f'<main id="main"{f" data-state={escape(live)!r}" if live else ""}>',
        *(_html_section(section, number, own) for number, (section, own) in enumerate(zip(sections, pictures, strict=True))),
        "</main>",
        f"<footer><p>{LIVE if live else ALONE}</p></footer>",
        f"<script>{vega}</script>",
        f"<script>{script}</script>",
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
    ]
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>", ""]
    return "\n".join(lines)


def _asset(name: str) -> str:
    return resources.files("boolit.lab.reports").joinpath(name).read_text(encoding="utf-8")


def _navigation(sections: Sequence[Section]) -> str:
    if len(sections) > 1:
        links = [(f"s{number}", section.title) for number, section in enumerate(sections)]
    else:
        links = [(f"s0-{name.lower()}", name) for name in _parts(sections[0])]
    items = "".join(f'<li><a href="#{target}">{escape(text)}</a></li>' for target, text in links)
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>' if len(links) > 1 else ""


def _parts(section: Section) -> list[str]:
    found = {
        _first_heading(section): section.tables,
        "Charts": section.charts,
        "Tables": section.tables[1:],
        "Recipe": section.recipe,
        "Environment": section.environment,
        "Repeat": section.command,
    }
    return [name for name, part in found.items() if part]


def _first_heading(section: Section) -> str:
    return {"bench": "Times", "search": "Settings"}.get(section.kind, "Scores")


def _html_section(section: Section, number: int, images: Sequence[Image]) -> str:
    place, several = f"s{number}", len(section.tables) > 1
    parts = [f'<section id="{place}" aria-label="{escape(section.title)}">', f'<h2 class="title">{escape(section.title)}</h2>']
    if section.unfinished:
        parts.append(f'<p class="unfinished" role="status">{escape(section.unfinished)}</p>')
        done = f'<progress max="{section.planned}" value="{section.done}" aria-label="runs that are done"></progress>'
        parts.append(done)
    if section.verdict:
        parts.append(f'<p class="verdict">{_html_sentence(section.verdict, section)}</p>')
    parts += [f"<p>{_html_sentence(paragraph, section)}</p>" for paragraph in section.paragraphs]
    if section.tables:
        heading = _first_heading(section)
        parts.append(f'<h3 id="{place}-{heading.lower()}">{heading}</h3>{FORMATS["html"](section.tables[0])}')
    if section.charts:
        parts.append(f'<h3 id="{place}-charts">Charts</h3>')
        parts += [_html_charts(charts, f"{place}-{which}") for which, charts in enumerate(section.charts)]
    if several:
        parts.append(f'<h3 id="{place}-tables">Further tables</h3>')
        parts += [FORMATS["html"](table) for table in section.tables[1:]]
    parts += map(_html_image, images)
    for heading, facts in (("Recipe", section.recipe), ("Environment", section.environment)):
        if facts:
            parts.append(f'<h3 id="{place}-{heading.lower()}">{heading}</h3>{_html_facts(facts)}')
    if section.command:
        command = f'<pre tabindex="0" aria-label="command"><code>{escape(section.command)}</code></pre>'
        parts.append(f'<h3 id="{place}-repeat">Repeat it</h3>{command}')
    return "\n".join([*parts, "</section>"])


def _html_sentence(text: str, section: Section) -> str:
    """A sentence with the paper's names of the section's activations set as HTML has them, with real subscripts."""
    specs = {paper_name(spec): spec for charts in section.charts for spec in charts.activations}
    names = sorted((name for name in specs if name != specs[name]), key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
    return "".join(html_name(specs[piece]) if piece in specs else escape(piece) for piece in pieces)


def _html_facts(facts: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>' for name, text in facts.items())}</dl>"


def _html_charts(charts: ChartSet, place: str) -> str:
    """The legend, whose buttons hide and show activations, the choice of a panel, and a place for every chart."""
    buttons = "".join(
        f'<button type="button" aria-pressed="true">{_swatch(spec)}<span>{html_name(spec)}</span></button>'
        for spec in charts.activations
    )
    legend = f'<div class="legend" role="group" aria-label="Activations: press to hide or show">{buttons}</div>'
    chosen = ""
    if charts.panels:
        options = "".join(
            f'<option value="{escape(panel)}"{" selected" * (panel == charts.panel)}>{escape(panel)}</option>'
            for panel in charts.panels
        )
        chosen = f'<p class="panel"><label>Shown in charts of one size: <select>{options}</select></label></p>'
    figures = "".join(
        f'<figure class="chart" data-chart="{escape(chart.name)}"><h4>{escape(chart.title)}</h4>'
        f'<div class="plot" role="img" aria-label="{escape(chart.description)}"></div>'
        f"<figcaption>{escape(chart.description)}</figcaption></figure>"
        for chart in charts.charts
    )
    data = embed_json(charts.to_json())
    fallback = "<noscript><p>The charts need JavaScript; the tables have their numbers.</p></noscript>"
    return (
        f'<div class="charts" id="{place}">{legend}{chosen}{fallback}<div class="figures">{figures}</div>'
        f'<script type="application/json">{data}</script></div>'
    )


def _swatch(spec: str) -> str:
    """The colour and the line of an activation; activations of one colour differ in their line."""
    own = style(spec)
    line = f'<line x1="0" x2="28" y1="6" y2="6" stroke-dasharray="{" ".join(map(str, DASHES[own.line]))}"></line>'
    return f'<svg class="swatch" width="28" height="12" aria-hidden="true">{line}<circle cx="14" cy="6" r="4"></circle></svg>'


def embed_json(value: Any) -> str:
    """JSON for a script element, which nothing in it can end: < is written as an escape.

    Example:
        >>> embed_json({"name": "</script><!--"})
        '{"name":"\\\\u003c/script>\\\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _html_image(image: Image) -> str:
    """Embedded, so that the page is a single file."""
    path, caption = image
    data = base64.b64encode(path.read_bytes()).decode()
    words = escape(caption)
    picture = f'<img alt="{words}" src="data:image/png;base64,{data}">'
    return f'<figure class="picture">{picture}<figcaption>{words}</figcaption></figure>'
