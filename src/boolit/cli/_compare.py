"""``boolit compare`` and ``boolit predict``: a table of the user's own."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from boolit.cli._options import (
    RESULTS,
    TRAINING,
    WHAT,
    ClusterOption,
    DeviceOption,
    Task,
    WorkersOption,
    activations_option,
    complete_activations,
    out_option,
    split_names,
    values,
)
from boolit.cli._run import end_unless_complete, local_device, open_cluster
from boolit.cli._terminal import OUTPUT, JsonOption, activation_name, output, print_json, progress, wrap
from boolit.errors import UserError
from boolit.lab.compare.config import MANY_ROWS, MIN_SPLITS, SPLITS, SPLITS_OF_MANY_ROWS, CompareConfig

if TYPE_CHECKING:
    from boolit.lab.compare.job import CompareJob, CompareResult
    from boolit.lab.datasets.tables import PreparedTable

TableArgument = Annotated[Path, typer.Argument(metavar="TABLE", help="A .csv, .tsv, .parquet or .npz file.")]
DATA = "Data"


def compare(
    table: TableArgument,
    target: Annotated[
        str, typer.Option("--target", "-t", metavar="COLUMN", help="The column to predict.", rich_help_panel=DATA)
    ],
    task: Annotated[
        Task | None,
        typer.Option(
            "--task",
            metavar=values(Task),
            help="Predict a class or a number.",
            show_default="what the target looks like",
            rich_help_panel=DATA,
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="COLUMN", help="A column to leave out; may be repeated.", rich_help_panel=DATA),
    ] = None,
    levels: Annotated[
        int,
        typer.Option(
            "--levels",
            min=1,
            metavar="N",
            help="A column of text with at most this many different values is a category.",
            rich_help_panel=DATA,
        ),
    ] = CompareConfig.levels,
    test: Annotated[
        float,
        typer.Option("--test", min=0.01, max=0.9, metavar="X", help="The share of rows to test on.", rich_help_panel=DATA),
    ] = CompareConfig.test,
    validation: Annotated[
        float,
        typer.Option(
            "--validation",
            min=0.01,
            max=0.9,
            metavar="X",
            help="The share of the other rows to validate on.",
            rich_help_panel=DATA,
        ),
    ] = CompareConfig.validation,
    activations: Annotated[str, activations_option()] = ", ".join(CompareConfig.activations),
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="A",
            help="The activation that the others are tested against.",
            show_default="relu, or else the first",
            autocompletion=complete_activations,
            rich_help_panel=WHAT,
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget",
            min=1,
            metavar="N",
            help="Parameters of each network.",
            show_default="10,000, or 50 per feature if that is more",
            rich_help_panel=WHAT,
        ),
    ] = None,
    layers: Annotated[
        int, typer.Option("--layers", min=1, max=20, metavar="N", help="Hidden layers.", rich_help_panel=WHAT)
    ] = CompareConfig.layers,
    splits: Annotated[
        int | None,
        typer.Option(
            "--splits",
            min=MIN_SPLITS,
            metavar="N",
            help="How many random splits of the rows.",
            show_default=f"{SPLITS}; {SPLITS_OF_MANY_ROWS} from {MANY_ROWS:,} rows on",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs", min=1, metavar="N", help="At most so many.", show_default="by the rows", rich_help_panel=TRAINING
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            "--rates",
            metavar="X,Y,...",
            help="Learning rates to try, with commas between.",
            show_default=", ".join(f"{rate:g}" for rate in CompareConfig.rates),
            rich_help_panel=TRAINING,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="X",
            help="About how long it may take, above 0; splits, rates and epochs are reduced for it.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    out: Annotated[Path | None, out_option("results/TABLE")] = None,
    json: JsonOption = False,
) -> None:
    """Find out which activation is better on your own table.

    Networks of equal size on several random splits of the rows, with learning rates chosen by validation, each stopped early; a
    table, a verdict, figures, and a model for boolit.load and boolit predict. The same command goes on where it was stopped.

    Examples:
      boolit compare wine.csv --target quality
      boolit compare houses.parquet -t price --task regress --drop id --minutes 10
      boolit compare wine.csv -t quality --activations relu,or_ail --layers 3
    """
    from boolit.lab.common.devices import use_device
    from boolit.lab.compare.job import CompareJob

    config = CompareConfig(
        table,
        target,
        None if task is None else task.value,
        split_names(activations),
        budget,
        layers,
        splits,
        test,
        validation,
        levels,
        tuple(drop or ()),
        epochs,
        reference,
        CompareConfig.rates if rates is None else _rates(rates),
        minutes,
    )
    shown, folder, started = False if json else None, out or RESULTS / config.name, time.monotonic()
    with use_device(local_device(device, cluster)):
        job = CompareJob.prepare(config, shown)
        if minutes is not None:
            job = job.fit_minutes(minutes, folder, time.monotonic() - started)
        if not json:
            _tell(job)
        with open_cluster(workers, cluster, device) as on:
            result = job.run(folder, shown, cluster=on)
    print_json(job.to_json() | result.to_json()) if json else _print(result)
    end_unless_complete(result.summary)


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A best.safetensors that boolit compare wrote.")],
    table: TableArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The CSV file to write.",
            show_default="standard output",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Predict the target of every row of a table with a saved model, as CSV.

    One column with the prediction and, for classes, one with the probability of each. A note on standard error names the
    categories that the model does not know.

    Examples:
      boolit predict results/wine/best.safetensors new.csv --out answers.csv
      boolit predict results/wine/best.safetensors new.csv | head
    """
    from boolit.lab.compare.saved import write_predictions

    predicted = write_predictions(model, table, sys.stdout if out is None else out)
    for note in predicted.notes():
        progress().print(f"Note: {escape(note)}", soft_wrap=True)
    if out is not None:
        progress().print(f"{predicted.rows} predictions: {escape(str(out))}", soft_wrap=True)


def _rates(given: str) -> tuple[float, ...]:
    try:
        return tuple(float(rate) for rate in given.split(",") if rate.strip())
    except ValueError:
        raise UserError(f"--rates {given} are not numbers with commas between; write them as 0.003,0.01,0.03") from None


def _tell(job: CompareJob) -> None:
    """What was read, before anything is trained."""
    console = progress()
    for line in [*_lines(job.table), f"Splits: {len(job.splits)}", *job.notes]:
        console.print(escape(line), soft_wrap=True)
    counts = ", ".join(f"{activation_name(spec, console)} {count:,}" for spec, count in job.parameters.items())
    console.print(f"Parameters: {escape(counts)}\n", soft_wrap=True)


def _lines(table: PreparedTable) -> list[str]:
    verbs = {"train": "train", "valid": "validate", "test": "test"}
    rows = ", ".join(f"{table.rows[name]:,} to {verb} on" for name, verb in verbs.items())
    kinds = [column.kind for column in table.columns]
    names = {"number": "numeric", "flag": "true or false", "date": "dates", "category": "categories"}
    columns = ", ".join(f"{kinds.count(kind)} {name}" for kind, name in names.items() if kind in kinds)
    task = f"{len(table.classes)} classes" if table.classes else "a quantity"
    left_out = [f"Left out: {table.left_out} rows without a target"] * (table.left_out > 0)
    return [
        f"Target: {table.target}, {task} (--task changes it)",
        f"Rows: {rows}",
        f"Columns: {columns}; {table.features} features",
        *left_out,
        *(f"Not used: {name} ({reason})" for name, reason in table.dropped.items()),
    ]


def _print(result: CompareResult) -> None:
    from boolit.lab.reports.tables import terminal_table

    console = output()
    if result.report and result.verdict:
        console.print(terminal_table(result.report.tables[0], console.width))
        console.print()
        console.print(f"[bold]{escape(wrap(str(result.verdict), console.width))}[/]\n", soft_wrap=True)
        if result.saved:
            console.print(f"{escape(wrap(result.saved.describe(result.verdict), console.width))}\n", soft_wrap=True)
    for note in result.notes:
        console.print(f"Note: {escape(note)}", soft_wrap=True)
    summary = result.summary
    if not summary.complete:
        console.print(
            f"{summary.undone + summary.elsewhere + summary.failed} runs are not done; the same command goes on from here."
        )
    console.print(f"{summary.trained:,} runs trained in {summary.seconds:.0f} s, {summary.already:,} were there already.")
    if result.saved:
        console.print(f"Model: {escape(str(result.saved.path))}", soft_wrap=True)
    if result.report:
        console.print(f"Report: {escape(str(result.report.page))}", soft_wrap=True)
