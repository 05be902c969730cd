"""Report sections as one self-contained HTML page.

Styles, scripts, data and pictures are inside the file, and its content policy forbids every connection. A page from
`boolit.lab.reports.server` may ask that server for updates.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from boolit.lab.results.names import paper_name

if TYPE_CHECKING:
    from boolit.lab.reports.charts import Chart
    from boolit.lab.reports.tables import Table

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Picture:
    """A PNG image with a caption; ``name`` is that of its file."""

    name: str
    caption: str
    png: bytes


@dataclass(frozen=True)
class Section:
    """Part of a report: a verdict, tables and charts.

    ``kind`` is ``study``, ``search`` or ``compare``; ``done`` of ``planned`` runs are recorded. If it is not known how many are
    planned, ``planned`` is None.
    """

    title: str
    kind: str
    verdict: str = ""
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    pictures: Sequence[Picture] = ()
    recipe: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None
    command: str = ""
    done: int = 0
    planned: int | None = 0

    @property
    def unfinished(self) -> str:
        """The sentence that replaces the verdict while runs are missing."""
        if self.planned is not None and self.done >= self.planned:
            return ""
        done = f"{self.done} runs" if self.planned is None else f"{self.done} of {self.planned} runs"
        return f"Unfinished: {done} are done; there is no verdict before all are."


def html_page(sections: Sequence[Section], live: str = "") -> str:
    """Render report sections as a self-contained HTML page.

    Args:
        sections: the sections.
        live: tag of the state that a server shows; the page asks the server for later states.
    """
    from boolit.lab.reports.charts import series, vega_script

    script, vega = (FOLDER / "page.js").read_text(encoding="utf-8"), vega_script()
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(text.encode()).digest())}'" for text in (vega, script))
    connect = "'self'" if live else "'none'"
    title = sections[0].title if len(sections) == 1 else f"{len(sections)} results: {', '.join(s.title for s in sections)}"
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    texts = {"policy": policy, "style": Markup(style), "script": Markup(script), "vega": Markup(vega)}
    legends = [series(_activations(section)) for section in sections]
    charts = [{chart.name: chart.spec() for chart in section.charts} for section in sections]
    data = [{"series": legend, "charts": specs} for legend, specs in zip(legends, charts, strict=True)]
    template = _environment().get_template("page.html.jinja")
    return template.render(title=title, sections=sections, live=live, legends=legends, data=data, **texts)


def _activations(section: Section) -> list[str]:
    return list(dict.fromkeys(spec for chart in section.charts for spec in chart.activations))


def html_table(table: Table) -> str:
    """Render one table as HTML."""
    return str(_environment().get_template("page.html.jinja").module.table(table))  # type: ignore[attr-defined]


@cache
def _environment() -> Environment:
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    environment.filters["row_name"] = lambda name: Markup(paper_name(name, "html"))
    environment.filters["base64"] = _base64
    environment.filters["number"] = lambda value: (
        repr(float(value)) if isinstance(value, (int, float)) and value == value else ""
    )
    return environment


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
