"""Report sections as one self-contained HTML page.

Styles, scripts, data and pictures are inside the file, and its content policy forbids every connection. A page from
`boolit.lab.reports.server` may ask that server for updates.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from boolit.lab.results.names import html_name

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
    """Part of a report: a verdict, or while runs are missing the sentence ``unfinished``, with tables and charts.

    ``kind`` is ``study``, ``search``, ``compare`` or ``bench``; ``done`` of ``planned`` runs are recorded.
    """

    title: str
    kind: str
    verdict: str = ""
    unfinished: str = ""
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    pictures: Sequence[Picture] = ()
    recipe: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None
    command: str = ""
    done: int = 0
    planned: int = 0


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
    data = [embed_json({"series": legend, "charts": specs}) for legend, specs in zip(legends, charts, strict=True)]
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
    environment.filters["row_name"] = lambda name: Markup(" − ").join(Markup(html_name(part)) for part in name.split(" − "))
    environment.filters["base64"] = _base64
    environment.filters["number"] = lambda value: (
        repr(float(value)) if isinstance(value, (int, float)) and value == value else ""
    )
    return environment


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def embed_json(value: Any) -> Markup:
    r"""Return JSON for a script element; ``<`` is escaped so that no text can end the element.

    Example:
        >>> print(embed_json({"name": "</script><!--"}))
        {"name":"\u003c/script>\u003c!--"}
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))
