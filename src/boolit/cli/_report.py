"""``boolit report`` and ``boolit watch``: the page of finished runs, and of those that are being trained."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._terminal import OUTPUT, JsonOption, has_browser, output, print_json, progress
from boolit.errors import UserError
from boolit.lab.common.progress import show_working

if TYPE_CHECKING:
    from boolit.lab.reports.page import Section

FoldersArgument = Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders that boolit run, compare or search wrote.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in the browser.", rich_help_panel=OUTPUT)]


def report(
    folders: FoldersArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="The page to write.",
            show_default="DIR/report/report.html",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    open: OpenOption = False,  # noqa: A002 (the option's name)
    json: JsonOption = False,
) -> None:
    """Write the report of one folder or several, as one HTML page.

    Nothing is trained, and a study that is not finished has a page, too. Several folders need --out; runs of one study that
    are in several of them are compared together, and everything else has a section of its own.

    Examples:
      boolit report results/parity-quick
      boolit report results/parity-quick --open
      boolit report results/wine results/parity-quick --out both.html
    """
    with show_working("writing the report", False if json else None):
        page, sections = _write(folders, out)
    if json:
        entry = {"page": str(page), "sections": [_entry(section) for section in sections]}
        print_json(entry)
    else:
        console = output()
        for section in sections:
            console.print(f"[bold]{escape(section.title)}[/]: {escape(section.verdict or section.unfinished)}")
        console.print(f"Report: {escape(str(page))}", soft_wrap=True)
    if open:
        open_page(page.resolve().as_uri())


def watch(
    folders: FoldersArgument,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            metavar="N",
            help="The port to serve it at.",
            show_default="a free one",
            rich_help_panel=OUTPUT,
        ),
    ] = 0,
    open: OpenOption = False,  # noqa: A002 (the option's name)
) -> None:
    """Serve the report of a study that is running, to this machine only, until Ctrl-C.

    The page updates by itself when runs are added. It is served at 127.0.0.1, where no other machine can reach it.

    Examples:
      boolit watch results/parity-quick
      boolit watch results/parity-quick --port 8000 --open
    """
    from boolit.lab.reports.server import ReportServer

    with ReportServer(folders, port) as server:
        progress().print(f"Watching {escape(', '.join(map(str, folders)))}: {server.url} (Ctrl-C ends it)", soft_wrap=True)
        if open:
            open_page(server.url)
        server.serve_forever(poll_interval=0.2)


def open_page(url: str) -> None:
    """Opens a page in the user's browser; an error where there is none."""
    if not (has_browser() and webbrowser.open(url)):
        raise UserError(f"there is no desktop or browser to open {url} in; copy the page to where one is")


def _write(folders: list[Path], out: Path | None) -> tuple[Path, list[Section]]:
    from boolit.lab.paper.figures.trained import pictures
    from boolit.lab.reports.report import read_section, write_page, write_report

    if out is not None and out.suffix != ".html":
        raise UserError(f"--out {out} is not a page: its name must end in .html")
    if out is None and len(folders) > 1:
        raise UserError(f"{len(folders)} folders have no page of their own; name one: --out report.html")
    if out is None:
        report = write_report(folders[0], pictures)
        if report.page is None:
            raise UserError(f"{folders[0]} has no finished runs to report")
        return report.page, [report.section]
    sections = [read_section(folder, pictures) for folder in folders]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return write_page(sections, out), sections
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror or error}); name another file by --out") from error


def _entry(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "kind": section.kind,
        "verdict": section.verdict or None,
        "unfinished": section.unfinished or None,
        "done": section.done,
        "planned": section.planned,
        "command": section.command or None,
    }
