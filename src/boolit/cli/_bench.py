"""``boolit bench``: how fast, and with how much memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from boolit.cli._bench_training import training
from boolit.cli._terminal import output, plain_table, print_json, progress
from boolit.lab.bench.settings import DTYPES, REPEATS, read

if TYPE_CHECKING:
    from boolit.lab.bench.gates import Report
    from boolit.lab.bench.result import Result
    from boolit.lab.bench.table import Table


def application() -> typer.Typer:
    """The benchmarks, one a command."""
    app = typer.Typer(help="Measure speed and memory, as ratios to what everybody knows.", rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_help)
    app.command("gates")(gates)
    app.command("training")(training)
    return app


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def gates(
    shape: Annotated[
        list[str] | None, typer.Option(metavar="SIZES", help="A tensor's sizes, like 64x64x32x32; may be given again.")
    ] = None,
    dim: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Its channels' dimension, one for each shape; else −1, or 1 if it has more than 2."),
    ] = None,
    specs: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Activations, separated by commas; see `boolit list`.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Rounds; every candidate is timed once in each.")] = REPEATS,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help=f"One of {', '.join(DTYPES)}.")] = "float32",
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads, if not as many as torch takes by itself.")
    ] = None,
    compiled: Annotated[bool, typer.Option("--compiled", help="Our formulas under torch.compile too: takes minutes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
    chart: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the ratios to relu as a bar chart.")] = None,
) -> None:
    """Compare our gates with relu, silu, gelu, glu, a copy and the published package.

    Forward and backward, bytes kept for backward, and the time of a call on next to nothing. Takes about a minute; the
    exit code is 0 whatever the figures, since a busy machine is no fault of the code.
    """
    from boolit.lab.bench.chart import check_file
    from boolit.lab.bench.gates import run

    settings = read(shape or (), dim or (), specs or (), repeats, dtype, compiled)
    if chart is not None:
        check_file(chart)
    with _progress_bar() as report:
        result = run(settings, report, threads)
    _deliver(result, json, chart)


@contextmanager
def _progress_bar() -> Iterator[Report]:
    """A bar that is drawn between rounds only: one that refreshes itself would take its time from the candidates."""
    columns = (BarColumn(30), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    console = progress()
    with Progress(*columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal) as bar:
        whole = bar.add_task("", total=1.0)

        def report(label: str, share: float) -> None:
            bar.update(whole, description=escape(label), advance=share)
            bar.refresh()

        yield report


def _deliver(result: Result, json: bool, chart: Path | None) -> None:
    if json:
        from boolit.lab.bench.record import record

        print_json(record(result))
    else:
        _print(result)
    if chart is not None:
        from boolit.lab.bench.chart import draw

        draw(result, chart)
        progress().print(f"wrote {chart}", markup=False, soft_wrap=True)


def _print(result: Result) -> None:
    from boolit.lab.bench.table import headline, remarks, tables

    console = output()
    console.print(headline(result), markup=False, style="dim")
    for table in tables(result):
        console.print(f"\n[bold]{escape(table.title)}[/]")
        _print_table(console, table)
    verdicts = result.verdicts()
    console.print("\nrelu to copy: our time over theirs; published and compiled: how many times faster we are", style="dim")
    console.print(f"{sum(verdicts)} of {len(verdicts)} bars met")
    for remark in remarks(result):
        console.print(f"[yellow]note:[/] {escape(remark)}")


def _print_table(console: Console, table: Table) -> None:
    shown = plain_table(*table.headings, right=tuple(table.headings[1:]))
    for row in table.rows:
        shown.add_row(*(_coloured(cell, console.options.ascii_only) for cell in row))
    for row in table.references:
        shown.add_row(*map(escape, row), style="dim")
    console.print(shown)


def _coloured(cell: str, ascii_only: bool) -> str:
    from boolit.lab.bench.table import MET, MISSED

    passed, failed = ("ok", "FAIL") if ascii_only else (MET, MISSED)
    return escape(cell).replace(MET, f"[green]{passed}[/]").replace(MISSED, f"[red]{failed}[/]")
