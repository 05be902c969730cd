"""``boolit compare`` and ``boolit predict``: the user's own tables and images."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from boolit.cli._run import end_unless_complete, local_device, open_cluster, this_command
from boolit.cli._terminal import OUTPUT, JsonOption, activation_name, output, print_json, progress, wrap
from boolit.errors import UserError, user_input
from boolit.lab.common.progress import show_working
from boolit.lab.compare.config import MANY_ROWS, MAX_SPLITS, MIN_SPLITS, SPLITS, SPLITS_OF_MANY_ROWS, CompareConfig

if TYPE_CHECKING:
    from boolit.lab.compare.job import CompareJob, CompareResult

DATA = "The data"


class ClassWeight(str, Enum):
    """Weights of the classes in training."""

    BALANCED = "balanced"


def _data(*names: str, help_: str, metavar: str = "COLUMN", **settings: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel=DATA, **settings)


def compare(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A CSV, TSV or Parquet file, or a folder of images by class.")],
    target: Annotated[str | None, _data("--target", "-t", help_="The column to predict; images have none.")] = None,
    task: Annotated[
        Task | None,
        _data("--task", help_="Predict a class or a number.", metavar=values(Task), show_default="what the target looks like"),
    ] = None,
    metric: Annotated[
        str | None,
        _data(
            "--metric",
            help_="Any scorer of scikit-learn, such as roc_auc, balanced_accuracy, neg_log_loss or r2.",
            metavar="NAME",
            show_default="accuracy, roc_auc for a rare class, or RMSE",
        ),
    ] = None,
    class_weight: Annotated[
        ClassWeight | None, _data("--class-weight", help_="Give all classes the same weight.", metavar="balanced")
    ] = None,
    drop: Annotated[list[str] | None, _data("--drop", help_="A column to leave out; may be repeated.")] = None,
    keep: Annotated[list[str] | None, _data("--keep", help_="A column to use even if it looks like an ID.")] = None,
    groups: Annotated[str | None, _data("--groups", help_="Rows with the same value here stay together.")] = None,
    time: Annotated[str | None, _data("--time", help_="Order rows by this column and test on the latest.")] = None,
    levels: Annotated[
        int, _data("--levels", help_="Categories of a column that have their own feature.", metavar="N", min=1)
    ] = CompareConfig.levels,
    test: Annotated[
        float, _data("--test", help_="The share of rows to test on.", metavar="X", min=0.01, max=0.9)
    ] = CompareConfig.test,
    validation: Annotated[
        float, _data("--validation", help_="The share of the other rows to validate on.", metavar="X", min=0.01, max=0.9)
    ] = CompareConfig.validation,
    weights: Annotated[
        Path | None,
        _data("--weights", help_="Weights of the ResNet-18 that encodes images.", metavar="FILE", show_default="torchvision's"),
    ] = None,
    activations: Annotated[str, activations_option()] = ", ".join(CompareConfig.activations),
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="A",
            help="The activation that the others are described against.",
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
            max=MAX_SPLITS,
            metavar="N",
            help="Number of random splits of the rows.",
            show_default=f"{SPLITS}; {SPLITS_OF_MANY_ROWS} from {MANY_ROWS:,} rows on",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=1, metavar="N", help="Epochs at most.", show_default="by rows", rich_help_panel=TRAINING),
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
            help="About how long it may take; splits, rates and epochs are reduced to fit.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    out: Annotated[Path | None, out_option("results/NAME")] = None,
    json: JsonOption = False,
) -> None:
    """Find out which activation is better on your own table or images.

    Networks of equal size train on several splits of the rows, with learning rates chosen on validation rows. The result is a
    table with baselines, a verdict, figures, and a model for boolit.load and boolit predict. Interrupted, the same command
    resumes.

    Examples:
      boolit compare wine.csv --target quality
      boolit compare patients.csv -t relapse --metric roc_auc --groups patient
      boolit compare houses.parquet -t price --task regress --time sold --minutes 10
      boolit compare flowers/
    """
    from boolit.lab.common.devices import use_device
    from boolit.lab.compare.job import CompareJob
    from boolit.lab.reports.report import write_report

    config = CompareConfig(
        path,
        target,
        None if task is None else task.value,
        metric,
        None if class_weight is None else class_weight.value,
        split_names(activations),
        reference,
        budget,
        layers,
        splits,
        test,
        validation,
        levels,
        tuple(drop or ()),
        tuple(keep or ()),
        groups,
        time,
        epochs,
        CompareConfig.rates if rates is None else _rates(rates),
        minutes,
        weights,
    )
    shown, folder = False if json else None, out or RESULTS / config.name
    with use_device(local_device(device, cluster)):
        with show_working("reading", shown):
            job = CompareJob.prepare(config, shown)
        if not json:
            _describe(job)
        with show_working("estimating the time", shown):
            job = job.limit(folder)
        if not json:
            progress().print(f"Expected time: {_duration(job.seconds)}\n")
        with open_cluster(workers, cluster, device) as on:
            result = job.run(folder, shown, cluster=on, command=this_command())
    report = write_report(folder) if result.verdict else None
    if json:
        print_json(job.to_json() | result.to_json() | {"report": str(folder / "report") if report else None})
    else:
        _print(job, result, folder)
    end_unless_complete(result.summary)


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model.skops that boolit compare wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV, TSV or Parquet file.")],
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

    One column with the prediction and, for classes, one with the probability of each. A note on standard error names
    categories that the model does not know.

    Examples:
      boolit predict results/wine/model.skops new.csv --out answers.csv
      boolit predict results/wine/model.skops new.csv | head
    """
    from boolit.lab.common.files import atomic_write
    from boolit.tables.model import load, write_predictions

    loaded = load(model)
    with user_input(), show_working("predicting"):
        if out is None:
            notes = write_predictions(loaded, table, sys.stdout)
        else:
            with atomic_write(out) as part, part.open("w", newline="", encoding="utf-8") as file:
                notes = write_predictions(loaded, table, file)
    for note in notes:
        progress().print(f"Note: {escape(note)}", soft_wrap=True)


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(rate) for rate in text.split(",") if rate.strip())
    except ValueError:
        raise UserError(f"--rates {text} are not numbers with commas between, such as 0.003,0.01,0.03") from None


def _duration(seconds: float) -> str:
    return f"about {seconds / 60:.0f} minutes" if seconds > 90 else f"about {max(1, seconds):.0f} seconds"


def _describe(job: CompareJob) -> None:
    console = progress()
    parameters = ", ".join(f"{activation_name(spec, console)} {count:,}" for spec, count in job.parameters.items())
    for line in [*job.description(), *(f"Note: {note}" for note in job.notes), f"Parameters: {parameters}"]:
        console.print(escape(line), soft_wrap=True)


def _print(job: CompareJob, result: CompareResult, folder: Path) -> None:
    from boolit.lab.compare.job import describe_model
    from boolit.lab.reports.tables import split_tables, terminal_table

    console = output()
    if result.verdict:
        table = split_tables(result.verdict, job.plan.study.title, job.parameters)[0]
        console.print(terminal_table(table, console.width))
        console.print(f"\n[bold]{escape(wrap(result.text, console.width))}[/]\n", soft_wrap=True)
        for sentence in describe_model(result):
            console.print(f"{escape(wrap(sentence, console.width))}\n", soft_wrap=True)
    for note in result.notes:
        if note not in job.notes:  # those were printed before the training
            console.print(f"Note: {escape(note)}", soft_wrap=True)
    summary = result.summary
    console.print(f"{summary.trained:,} runs trained in {summary.seconds:.0f} s, {summary.already:,} were in {folder}.")
    if result.model:
        console.print(f"Model: {escape(str(result.model))}", soft_wrap=True)
        console.print(f"Report: {escape(str(folder / 'report' / 'report.html'))}", soft_wrap=True)
