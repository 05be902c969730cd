"""``boolit bench``: how fast, and with how much memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

from boolit.cli._terminal import output, plain_table, print_json, progress
from boolit.lab.bench.settings import DTYPES, REPEATS, read
from boolit.lab.common.progress import count_progress, progress_bars

if TYPE_CHECKING:
    from boolit.lab.bench.gates import Report
    from boolit.lab.bench.presentation import Table
    from boolit.lab.bench.result import Result
    from boolit.lab.bench.training import AugmentationCost, HeadsCost, StackingGain, StepCost


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
    from boolit.lab.bench.gates import run
    from boolit.lab.bench.presentation import check_file

    settings = read(shape or (), dim or (), specs or (), repeats, dtype, compiled)
    if chart is not None:
        check_file(chart)
    with _progress_bar() as report:
        result = run(settings, report, threads)
    _deliver(result, json, chart)


@contextmanager
def _progress_bar() -> Iterator[Report]:
    """A bar that is drawn between rounds only: one that refreshes itself would take its time from the candidates."""
    columns = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[label]}"))
    with progress_bars(*columns, lines=False, auto_refresh=False) as bar:
        whole = bar.add_task("measuring", total=1.0, label="")

        def report(label: str, share: float) -> None:
            bar.update(whole, label=escape(label), advance=share)
            bar.refresh()

        yield report


def _deliver(result: Result, json: bool, chart: Path | None) -> None:
    if json:
        from boolit.lab.bench.record import record

        print_json(record(result))
    else:
        _print(result)
    if chart is not None:
        from boolit.lab.bench.presentation import draw

        draw(result, chart)
        progress().print(f"wrote {chart}", markup=False, soft_wrap=True)


def _print(result: Result) -> None:
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


def _print_table(console: Console, table: Table) -> None:
    shown = plain_table(*table.headings, right=tuple(table.headings[1:]))
    for row in table.rows:
        shown.add_row(*(_coloured(cell, console.options.ascii_only) for cell in row))
    for row in table.references:
        shown.add_row(*map(escape, row), style="dim")
    console.print(shown)


def _coloured(cell: str, ascii_only: bool) -> str:
    from boolit.lab.bench.presentation import MET, MISSED

    passed, failed = ("ok", "FAIL") if ascii_only else (MET, MISSED)
    return escape(cell).replace(MET, f"[green]{passed}[/]").replace(MISSED, f"[red]{failed}[/]")


# ``boolit bench training``: what stacking runs gains over training them one after the other, and what large networks cost.

BARS = {"parity study": 20, "54-32-32-7 with batch norm": 4}
AUGMENTATION = "affine"
RESNETS, RESNET_PARAMETERS, RESNET_BATCH = ("relu", "or_ail", "or_and_ail_d"), 23_500_000, 32
HEADS_BATCH = 128


def training(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Epochs of each, measured in turn.")] = 7,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
) -> None:
    """Measure how much faster stacked training is than a plain loop of the same trainer, and a step of large networks.

    Epochs of a cohort and of its single runs are timed in turn; what is compared is the median of each. Then steps of the
    paper's ResNet-50 with several activations, and of all heads of the transfer study against one, its encoder included. A
    timing decides nothing: the exit code is 0 whatever comes out.
    """
    from boolit.lab.bench.training import (
        augmentation_cost,
        batch_norm_job,
        compare_with_loop,
        heads_cost,
        mnist_job,
        resnet_steps,
        total,
    )
    from boolit.lab.studies import load_study, plan

    transfer = load_study("transfer-cifar10").resolved("paper").study.sweep
    cohorts = plan(load_study("parity")).cohorts
    gains: dict[str, StackingGain] = {}
    with count_progress(lines=False) as begin:
        advance = begin("training", len(cohorts) + 5)
        for cohort in cohorts:
            gains[f"parity, {cohort.runs[0].config['activation']}"] = compare_with_loop(cohort.job(), rounds)
            advance(1)
        gains["parity study"] = total(gains)
        gains["54-32-32-7 with batch norm"] = compare_with_loop(batch_norm_job(), rounds)
        advance(1)
        gains["mnist-mlp, 65k parameters, relu"] = compare_with_loop(mnist_job(), rounds)
        advance(1)
        cost = augmentation_cost(AUGMENTATION)
        advance(1)
        steps = resnet_steps(RESNETS, RESNET_PARAMETERS, RESNET_BATCH, rounds)
        advance(1)
        heads = heads_cost(transfer.activation, len(transfer.seed_list), HEADS_BATCH, rounds)
        advance(1)
    if json:
        entries = {name: {"runs": g.runs, "stacked": g.stacked, "loop": g.loop, "ratio": g.ratio} for name, g in gains.items()}
        augmentation = {"name": AUGMENTATION, "seconds": cost.augmentation, "step": cost.step, "ratio": cost.ratio}
        resnet = {spec: asdict(step) for spec, step in steps.items()}
        print_json(
            {
                "stacking": entries,
                "augmentation": augmentation,
                "resnet50": resnet,
                "heads": asdict(heads) | {"ratio": heads.ratio},
            }
        )
    else:
        _print_training(gains)
        _print_cost(cost)
        _print_steps(steps)
        _print_heads(heads)


def _print_training(gains: dict[str, StackingGain]) -> None:
    headings = ("runs", "stacked ms/epoch", "loop ms/epoch", "faster", "bar")
    table = plain_table("what", *headings, right=headings)
    for name, gain in gains.items():
        bar = f"≥ {BARS[name]} × {'✓' if gain.ratio >= BARS[name] else '✗'}" if name in BARS else ""
        figures = (str(gain.runs), f"{1e3 * gain.stacked:.1f}", f"{1e3 * gain.loop:.0f}", f"{gain.ratio:.1f} ×")
        table.add_row(escape(name), *figures, bar)
    output().print(table)


def _print_cost(cost: AugmentationCost) -> None:
    verdict = "✓" if cost.ratio <= 1 else "✗"
    output().print(
        f"\nAugmentation {AUGMENTATION} of {cost.runs} × 256 pictures of MNIST: {1e3 * cost.augmentation:.1f} ms, "
        f"the step it feeds (65k parameters): {1e3 * cost.step:.1f} ms; ratio {cost.ratio:.2f} (≤ 1 {verdict})",
        soft_wrap=True,
    )


def _print_steps(steps: dict[str, StepCost]) -> None:
    headings = ("parameters", "s/step", "× relu", "peak MB", "× relu ")
    table = plain_table("ResNet-50, batch 32", *headings, right=headings)
    base = steps["relu"]
    for spec, step in steps.items():
        figures = (f"{step.parameters:,}", f"{step.seconds:.2f}", f"{step.seconds / base.seconds:.2f}")
        table.add_row(spec, *figures, f"{step.peak / 1e6:.0f}", f"{step.peak / base.peak:.2f}")
    output().print()
    output().print(table)


def _print_heads(heads: HeadsCost) -> None:
    verdict = "✓" if heads.ratio <= 3 else "✗"
    output().print(
        f"\nTransfer, batch {HEADS_BATCH}: encoder {heads.encoder:.2f} s, one head's step {1e3 * heads.one:.1f} ms, "
        f"a step of all {heads.heads} heads {heads.all:.2f} s; all cost {heads.ratio:.2f} times as much as one (≤ 3 {verdict})",
        soft_wrap=True,
    )
