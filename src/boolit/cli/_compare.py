"""``boolit compare`` and ``boolit predict``: a table of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._run import INTERRUPTED, JsonOption
from boolit.cli._terminal import output, print_json, progress

if TYPE_CHECKING:
    from boolit.lab.comparing import Compared, Comparing
    from boolit.lab.tables import Prepared

TableArgument = Annotated[Path, typer.Argument(metavar="TABLE", help="A .csv, .tsv, .parquet or .npz file.")]
DEFAULT = "relu,silu,max,or_ail,xnor_nail,or_and_xnor_nail_d"


def compare(
    table: TableArgument,
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    task: Annotated[str | None, typer.Option("--task", help="classify or regress; seen from the target unless given.")] = None,
    activations: Annotated[str, typer.Option("--activations", "-a", help="Their names, with commas between.")] = DEFAULT,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Parameters of a network; 10,000 or 50 a feature unless given.")
    ] = None,
    layers: Annotated[int, typer.Option("--layers", min=1, max=20, help="Hidden layers.")] = 2,
    seeds: Annotated[int, typer.Option("--seeds", min=2, help="Trainings of each activation.")] = 5,
    test: Annotated[float, typer.Option("--test", min=0.01, max=0.9, help="The share of rows to test on.")] = 0.2,
    validation: Annotated[
        float, typer.Option("--validation", min=0.01, max=0.9, help="The share of the other rows to validate on.")
    ] = 0.2,
    levels: Annotated[int, typer.Option("--levels", min=1, help="The most texts of a column that count as categories.")] = 20,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="A column to leave out; may be repeated.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="The most epochs; by the rows unless given.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the results; runs/TABLE unless given.")] = None,
    json: JsonOption = False,
) -> None:
    """Find out which activation is better on your own table.

    Networks of equal size, a learning rate for each activation by validation, then several seeds, each stopped early; a table,
    a verdict, figures, and the best model, for boolit.load and boolit predict. The same command goes on where it was stopped.
    """
    from boolit.lab.comparing import Comparing, Question
    from boolit.lab.errors import UserError

    if task not in (None, "classify", "regress"):
        raise UserError(f"--task {task} is no task; use classify or regress")
    names = tuple(name.strip() for name in activations.split(",") if name.strip())
    asked = Question(
        table, target, _task(task), names, budget, layers, seeds, test, validation, levels, tuple(drop or ()), epochs
    )
    shown = False if json else None
    comparing = Comparing.of(asked, shown)
    if not json:
        _tell(comparing)
    compared = comparing.run(out or Path("runs") / asked.name, shown)
    print_json(_entry(comparing, compared)) if json else _print(compared)
    if compared.summary.interrupted:
        raise typer.Exit(INTERRUPTED)


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A best.safetensors that boolit compare wrote.")],
    table: TableArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The CSV file to write; standard output unless given.")
    ] = None,
) -> None:
    """Predict the target of every row of a table with a saved model, as CSV.

    One column with the prediction and, for classes, one with the probability of each.
    """
    from boolit.lab.comparing.predictions import write_predictions

    if out is None:
        import sys

        write_predictions(model, table, sys.stdout)
        return
    rows = write_predictions(model, table, out)
    progress().print(f"{rows} predictions: {escape(str(out))}", soft_wrap=True)


def _task(task: str | None) -> Any:
    """Checked above; the type checker cannot see it."""
    return task


def _tell(comparing: Comparing) -> None:
    """What was read, before anything is trained."""
    console = progress()
    for line in _lines(comparing.table):
        console.print(escape(line), soft_wrap=True)
    counts = ", ".join(f"{spec} {count}" for spec, count in comparing.parameters.items())
    console.print(f"Parameters: {escape(counts)}\n", soft_wrap=True)


def _lines(table: Prepared) -> list[str]:
    verbs = {"train": "train", "valid": "validate", "test": "test"}
    rows = ", ".join(f"{table.rows[name]} to {verb} on" for name, verb in verbs.items())
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


def _print(compared: Compared) -> None:
    from boolit.lab.reports.tables import terminal_table

    console = output()
    rates = ", ".join(f"{spec} {rate:g}" for spec, rate in compared.rates.items())
    if rates:
        console.print(f"Learning rates, by validation: {escape(rates)}\n", soft_wrap=True)
    if compared.report:
        for table in compared.report.tables:
            console.print(terminal_table(table, console.width))
            console.print()
        console.print(f"[bold]{escape(compared.report.verdict)}[/]\n")
    summary = compared.summary
    if not summary.complete:
        console.print(f"{summary.undone + summary.elsewhere} runs are not done; the same command goes on from here.")
    console.print(f"{summary.trained} runs trained in {summary.seconds:.0f} s, {summary.already} were there already.")
    if compared.best:
        best = compared.best
        shown = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in best.figures.items() if "loss" not in name)
        console.print(f"Best by validation: {escape(best.activation)}, seed {best.seed} ({shown}).")
        console.print(f"Model: {escape(str(best.path))}", soft_wrap=True)
    if compared.report:
        console.print(f"Report: {escape(str(compared.report.page))}", soft_wrap=True)


def _entry(comparing: Comparing, compared: Compared) -> dict[str, Any]:
    from boolit.lab.reports.tables import render

    table, report, best = comparing.table, compared.report, compared.best
    return {
        "target": table.target,
        "task": table.task,
        "classes": list(table.classes),
        "rows": {**table.rows, "without a target": table.left_out},
        "columns": {column.name: column.kind for column in table.columns},
        "dropped": dict(table.dropped),
        "parameters": comparing.parameters,
        "rates": dict(compared.rates),
        "complete": compared.summary.complete,
        "summary": vars(compared.summary),
        "verdict": report.verdict if report else None,
        "tables": {each.title: render(each, "csv") for each in report.tables} if report else {},
        "files": [str(path) for path in report.files] if report else [],
        "best": best and {**vars(best), "path": str(best.path), "figures": dict(best.figures)},
    }
