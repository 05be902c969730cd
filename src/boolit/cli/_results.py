"""``boolit report``, ``watch`` and ``export``: read results folders."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from boolit.cli import _options as options
from boolit.cli._terminal import output, print_json
from boolit.errors import UserError
from boolit.lab.common.progress import error_stream, show_working

if TYPE_CHECKING:
    from boolit.lab.reports.report import Section

FoldersArgument = Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders that boolit run, compare or search wrote.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]


def report(
    folders: FoldersArgument,
    out: Annotated[Path | None, options.out_option("DIR/report/report.html", "Page to write.", "FILE.html")] = None,
    charts: Annotated[
        list[str] | None,
        typer.Option(metavar="png|svg|pdf", help="Also write every chart as a file. May be repeated."),
    ] = None,
    open: OpenOption = False,  # noqa: A002
    json: options.JsonOption = False,
) -> None:
    """Write the report of one or more results folders as an HTML page.

    Nothing is trained, and an unfinished study has a report, too. Several
    folders need --out. Runs of one study in several folders are compared
    together; different studies have a section each.

    Examples:
      boolit report results/parity-quick
      boolit report results/parity-quick --open
      boolit report results/parity-quick --charts pdf --charts png
      boolit report results/wine results/parity-quick --out both.html
    """
    with show_working("writing the report", False if json else None):
        page, sections = _write_report(folders, out, charts or ())
    if json:
        names = ("title", "kind", "verdict", "unfinished", "done", "planned", "command")
        entries = [
            {name: None if getattr(section, name) == "" else getattr(section, name) for name in names} for section in sections
        ]
        print_json({"page": str(page), "sections": entries})
    else:
        for section in sections:
            output().print(f"[bold]{escape(section.title)}[/]: {escape(section.verdict or section.unfinished)}")
        output().print(f"Report: {escape(str(page))}", soft_wrap=True)
    if open:
        _open(page.resolve().as_uri())


def watch(
    folders: FoldersArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port.", show_default="a free one")] = 0,
    open: OpenOption = False,  # noqa: A002
) -> None:
    """Serve the report of a running study until Ctrl-C.

    The page updates when runs are added. It is served at 127.0.0.1, which
    other machines cannot reach.

    Examples:
      boolit watch results/parity-quick
      boolit watch results/parity-quick --port 8000 --open
    """
    from boolit.lab.reports.server import ReportServer

    with ReportServer(folders, port) as server:
        names = escape(", ".join(map(str, folders)))
        error_stream().print(f"Watching {names}: {server.url} (stop with Ctrl-C)", soft_wrap=True)
        if open:
            _open(server.url)
        server.serve_forever(poll_interval=0.2)


def export(
    folder: options.FolderArgument,
    format: Annotated[Literal["csv", "parquet", "json"], options.format_option()] = "csv",  # noqa: A002
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.", show_default="DIR/runs.FORMAT")] = None,
) -> None:
    """Write the runs of a results folder as a table.

    It has one row per run: activation, size, seed, metrics, seconds and more.

    Examples:
      boolit export results/parity-quick
      boolit export results/parity-quick --format parquet --to runs.parquet
    """
    from boolit.lab.results.store import Store
    from boolit.lab.results.store import export as write

    with Store(folder) as store, show_working("exporting the runs"):
        path = write(store.frame(), to or folder / f"runs.{format}", format)
    output().print(escape(str(path)), soft_wrap=True)


def _write_report(folders: list[Path], out: Path | None, charts: Sequence[str]) -> tuple[Path, list[Section]]:
    from boolit.lab.paper.figures.networks import pictures
    from boolit.lab.reports.report import read_section, write_page, write_report

    if out is not None and out.suffix != ".html":
        raise UserError(f"--out {out} is not the name of a page; it must end in .html")
    if out is None and len(folders) > 1:
        raise UserError(f"the report of {len(folders)} folders needs a file name; add --out report.html")
    if out is not None and charts:
        raise UserError(f"--charts {charts[0]} writes to DIR/report; leave out --out {out}")
    if out is None:
        report = write_report(folders[0], pictures, charts)
        if report.page is None:
            raise UserError(f"{folders[0]} has no finished runs to report")
        return report.page, [report.section]
    sections = [read_section(folder, pictures) for folder in folders]
    out.parent.mkdir(parents=True, exist_ok=True)
    return write_page(sections, out), sections


def _open(url: str) -> None:
    if not webbrowser.open(url):
        raise UserError(f"there is no browser to open {url} in; leave out --open")
