"""``boolit bench``: how fast, and with how much memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from boolit.cli._options import WHAT, FloatType, activations_option, complete_names, split_names, values
from boolit.cli._terminal import OUTPUT, JsonOption, activation_name, output, plain_table, print_json, progress
from boolit.lab.bench import MET, MISSED, REPEATS
from boolit.lab.common.progress import count_progress, progress_bars

if TYPE_CHECKING:
    from boolit.lab.bench.gates import OnProgress
    from boolit.lab.bench.presentation import BenchTable
    from boolit.lab.bench.result import GatesResult
    from boolit.lab.bench.training import TrainingResult


HOW = "How to measure"
PAGE = typer.Option("--report", metavar="FILE.html", help="Write tables and charts as an HTML page.", rich_help_panel=OUTPUT)


def gates(
    activations: Annotated[str | None, activations_option(show_default="the paper's gates")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="SIZES", help="A tensor's sizes, like 64x64x32x32; may be repeated.", rich_help_panel=WHAT),
    ] = None,
    dim: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="The dimension of its channels, one for each shape.",
            show_default="1 for images, else the last",
            rich_help_panel=WHAT,
        ),
    ] = None,
    dtype: Annotated[
        FloatType,
        typer.Option(metavar="TYPE", help=f"{values(FloatType).replace('|', ', ')}.", rich_help_panel=WHAT),
    ] = FloatType.FLOAT32,
    compiled: Annotated[
        bool,
        typer.Option("--compiled", help="Our formulas under torch.compile too: takes minutes.", rich_help_panel=WHAT),
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where to measure: cpu, cuda or cuda:1; boolit doctor shows what is here.",
            autocompletion=complete_names(("cpu", "cuda")),
            rich_help_panel=HOW,
        ),
    ] = "cpu",
    repeats: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Rounds; every candidate is timed once in each.", rich_help_panel=HOW),
    ] = REPEATS,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads.", show_default="as many as torch takes", rich_help_panel=HOW),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Draw the ratios to relu as a chart.", rich_help_panel=OUTPUT),
    ] = None,
    report: Annotated[Path | None, PAGE] = None,
    json: JsonOption = False,
) -> None:
    """Compare our gates with relu, silu, gelu, glu, a copy and the published package.

    Forward and backward, bytes kept for backward, and the time of a call on next to nothing. Takes about a minute; the
    exit code is 0 whatever the figures, since a busy machine is no fault of the code.

    Examples:
      boolit bench gates
      boolit bench gates --activations or_ail,xnor_il --shape 256x512
      boolit bench gates --dtype bfloat16 --repeats 10 --chart speed.png
      boolit bench gates --device cuda --json
    """
    from boolit.lab.bench.gates import measure_gates
    from boolit.lab.bench.page import check_page
    from boolit.lab.bench.presentation import check_file, draw
    from boolit.lab.bench.settings import parse_settings

    settings = parse_settings(shape or (), dim or (), split_names(activations), repeats, dtype.value, compiled, device)
    if chart is not None:
        check_file(chart)
    if report is not None:
        check_page(report)
    with _progress_bar(False if json else None) as advance:
        result = measure_gates(settings, advance, threads)
    if json:
        print_json(result.to_json())
    else:
        _print_gates(result)
    if chart is not None:
        draw(result, chart)
        progress().print(f"wrote {chart}", markup=False, soft_wrap=True)
    _write_page(result, report)


def _write_page(result: GatesResult | TrainingResult, path: Path | None) -> None:
    from boolit.lab.bench.page import write_bench_page

    if path is not None:
        write_bench_page(result, path)
        progress().print(f"wrote {path}", markup=False, soft_wrap=True)


@contextmanager
def _progress_bar(shown: bool | None) -> Iterator[OnProgress]:
    """A bar that is drawn between rounds only: one that refreshes itself would take its time from the candidates."""
    columns = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[label]}"))
    # Its lines in a file are printed between rounds as well: the thread that prints them sleeps.
    with progress_bars(*columns, shown=shown, auto_refresh=False, unit=(0.01, " %")) as bar:
        whole = bar.add_task("measuring", total=1.0, label="")

        def report(label: str, share: float) -> None:
            bar.update(whole, label=escape(label), advance=share)
            bar.refresh()

        yield report


def _print_gates(result: GatesResult) -> None:
    from boolit.lab.bench.presentation import headline, remarks, tables

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


def _print_table(console: Console, table: BenchTable) -> None:
    passed, failed = ("ok", "FAIL") if console.options.ascii_only else (MET, MISSED)
    shown = plain_table(*table.headings, right=tuple(table.headings[1:]))
    for row in table.rows:
        cells = (escape(cell).replace(MET, f"[green]{passed}[/]").replace(MISSED, f"[red]{failed}[/]") for cell in row)
        shown.add_row(*cells)
    for row in table.references:
        shown.add_row(*map(escape, row), style="dim")
    console.print(shown)


def training(
    rounds: Annotated[int, typer.Option("--rounds", min=1, metavar="N", help="Epochs of each, measured in turn.")] = 7,
    report: Annotated[Path | None, PAGE] = None,
    json: JsonOption = False,
) -> None:
    """Measure how much faster stacked training is than one run after the other, and a step of large networks.

    Epochs of a cohort, of its single runs and of one run in plain torch are timed in turn; the table has the median of the
    first, and how many times faster it is than the others. Then steps of the
    paper's ResNet-50 with several activations, and of all heads of the transfer study against one, its encoder included. A
    timing decides nothing: the exit code is 0 whatever comes out.

    Examples:
      boolit bench training
      boolit bench training --rounds 3 --json
    """
    from boolit.lab.bench.page import check_page
    from boolit.lab.bench.training import measure_training

    if report is not None:
        check_page(report)
    with count_progress(False if json else None) as begin:
        result = measure_training(rounds, begin)
    if json:
        print_json(result.to_json())
    else:
        _print_training(result)
    _write_page(result, report)


def _print_training(result: TrainingResult) -> None:
    from boolit.lab.bench.training import AUGMENTATION, AUGMENTATION_BAR, AUGMENTATION_BATCH, HEADS_BAR, HEADS_BATCH

    console, cost, heads = output(), result.augmentation, result.heads
    console.print(_gains_table(result))
    console.print(
        f"\nAugmentation {AUGMENTATION} of {cost.runs} × {AUGMENTATION_BATCH} pictures of MNIST: "
        f"{1e3 * cost.augmentation:.1f} ms, the step it feeds (65k parameters): {1e3 * cost.step:.1f} ms; "
        f"ratio {cost.ratio:.2f} (≤ {AUGMENTATION_BAR} {_mark(cost.ratio <= AUGMENTATION_BAR)})\n",
        soft_wrap=True,
    )
    console.print(_steps_table(result))
    console.print(
        f"\nTransfer, batch {HEADS_BATCH}: encoder {heads.encoder:.2f} s, one head's step {1e3 * heads.one:.1f} ms, "
        f"a step of all {heads.heads} heads {heads.all:.2f} s; all cost {heads.ratio:.2f} times as much as one "
        f"(≤ {HEADS_BAR} {_mark(heads.ratio <= HEADS_BAR)})",
        soft_wrap=True,
    )


def _gains_table(result: TrainingResult) -> Table:
    from boolit.lab.bench.training import STACKING_BARS

    headings = ("runs", "ms/epoch", "× one by one", "bar", "× plain torch")
    table = plain_table("what", *headings, right=headings)
    for name, gain in result.gains.items():
        bar = STACKING_BARS.get(name)
        met = f"≥ {bar} {_mark(gain.ratio >= bar)}" if bar else ""
        numbers = f"{1e3 * gain.stacked:.1f}", f"{gain.ratio:.1f}", met, f"{gain.plain_ratio:.1f}"
        table.add_row(escape(name), str(gain.runs), *numbers)
    return table


def _steps_table(result: TrainingResult) -> Table:
    headings = ("parameters", "s/step", "× relu", "peak MB", "× relu ")
    table = plain_table("ResNet-50, batch 32", *headings, right=headings)
    base, console = result.steps["relu"], output()
    for spec, step in result.steps.items():
        times = (f"{step.seconds:.2f}", f"{step.seconds / base.seconds:.2f}")
        table.add_row(
            activation_name(spec, console),
            f"{step.parameters:,}",
            *times,
            f"{step.peak / 1e6:.0f}",
            f"{step.peak / base.peak:.2f}",
        )
    return table


def _mark(met: bool) -> str:
    return MET if met else MISSED
