"""``boolit compare`` and ``boolit predict``: activations on the user's own tables and images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from boolit.cli import _options as options
from boolit.cli._options import training_option
from boolit.cli._run import end_unless_complete, local_device, open_cluster, this_command
from boolit.cli._terminal import activation_name, count_runs, output, print_json
from boolit.errors import UserError, user_input
from boolit.lab.common.progress import error_stream, show_working
from boolit.lab.compare import MANY_ROWS, MAX_SPLITS, MIN_SPLITS, SPLITS, SPLITS_OF_MANY_ROWS, CompareConfig

if TYPE_CHECKING:
    from boolit.lab.compare.job import CompareJob, CompareResult


def _data(*names: str, help_: str, metavar: str | None = "COLUMN", **settings: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_, rich_help_panel="Data", **settings)


def compare(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A CSV, TSV or Parquet file, or a folder of images by class.")],
    target: Annotated[str | None, _data("--target", "-t", help_="Column to predict; images have none.")] = None,
    task: Annotated[
        Literal["classify", "regress"] | None,
        _data(help_="Predict a class or a number.", metavar=None, show_default="depends on the target"),
    ] = None,
    metric: Annotated[
        str | None,
        _data(
            help_="A scorer of scikit-learn, such as roc_auc, balanced_accuracy, neg_log_loss or r2.",
            metavar="NAME",
            show_default="accuracy, roc_auc for a rare class, or RMSE",
        ),
    ] = None,
    class_weight: Annotated[
        Literal["balanced"] | None, _data(help_="Give all classes the same weight in training.", metavar=None)
    ] = None,
    drop: Annotated[list[str] | None, _data(help_="Column to leave out. May be repeated.")] = None,
    keep: Annotated[list[str] | None, _data(help_="Column to use even if it looks like an ID. May be repeated.")] = None,
    groups: Annotated[str | None, _data(help_="Keep rows with the same value of this column together.")] = None,
    time: Annotated[str | None, _data(help_="Order rows by this column and test on the latest.")] = None,
    test: Annotated[float, _data(help_="Share of the rows to test on.", metavar="X", min=0.01, max=0.9)] = CompareConfig.test,
    validation: Annotated[
        float, _data(help_="Share of the other rows to validate on.", metavar="X", min=0.01, max=0.9)
    ] = CompareConfig.validation,
    weights: Annotated[
        Path | None, _data(help_="Weights of the ResNet-18 that encodes images.", metavar="FILE", show_default="torchvision's")
    ] = None,
    activations: Annotated[str | None, options.activations_option(", ".join(CompareConfig.activations))] = None,
    budget: Annotated[
        int | None,
        training_option("Parameters of each network.", min=1, show_default="10,000, or 50 per feature if that is more"),
    ] = None,
    layers: Annotated[int, training_option("Hidden layers.", min=1, max=20)] = CompareConfig.layers,
    splits: Annotated[
        int | None,
        training_option(
            "Random splits of the rows.",
            min=MIN_SPLITS,
            max=MAX_SPLITS,
            show_default=f"{SPLITS}; {SPLITS_OF_MANY_ROWS} from {MANY_ROWS:,} rows on",
        ),
    ] = None,
    epochs: Annotated[
        int | None, training_option("Maximum number of epochs.", min=1, show_default="depends on the rows")
    ] = None,
    rates: Annotated[
        str | None,
        training_option(
            "Learning rates to try.", "X,Y,...", show_default=", ".join(f"{rate:g}" for rate in CompareConfig.rates)
        ),
    ] = None,
    minutes: Annotated[
        float | None, training_option("Approximate time limit; the maximum of epochs is reduced to fit.", "X", min=0.01)
    ] = None,
    device: options.DeviceOption = "auto",
    workers: options.WorkersOption = None,
    cluster: options.ClusterOption = None,
    out: Annotated[Path | None, options.out_option("results/NAME")] = None,
    json: options.JsonOption = False,
) -> None:
    """Compare activations on your own table or images.

    Networks of equal size train on several splits of the rows, with learning
    rates chosen on validation rows. The result is a table with baselines, a
    verdict, figures, and a model for boolit.load and boolit predict. After an
    interruption, the same command resumes.

    Examples:
      boolit compare wine.csv --target quality
      boolit compare patients.csv -t relapse --metric roc_auc --groups patient
      boolit compare houses.parquet -t price --time sold --minutes 10
      boolit compare flowers/
    """
    from boolit.lab.common.devices import use_device
    from boolit.lab.compare.job import CompareJob
    from boolit.lab.reports.report import write_report

    config = CompareConfig(
        path=path,
        target=target,
        task=task,
        metric=metric,
        class_weight=class_weight,
        activations=options.split_names(activations) or CompareConfig.activations,
        budget=budget,
        layers=layers,
        splits=splits,
        test=test,
        validation=validation,
        drop=tuple(drop or ()),
        keep=tuple(keep or ()),
        groups=groups,
        time=time,
        epochs=epochs,
        rates=CompareConfig.rates if rates is None else _rates(rates),
        minutes=minutes,
        weights=weights,
    )
    shown, folder = False if json else None, out or options.RESULTS / config.name
    with use_device(local_device(device, cluster)):
        with show_working("reading", shown):
            job = CompareJob.prepare(config, shown)
        if not json:
            _describe(job)
        with show_working("estimating the time", shown):
            job = job.limit(folder)
        if not json:
            error_stream().print(
                f"Expected time: {_duration(job.seconds)}, with at most {job.plan.study.training.epochs} epochs\n"
            )
        with open_cluster(workers, cluster, device) as workers_used:
            result = job.run(folder, shown, cluster=workers_used, command=this_command())
    report = write_report(folder) if result.verdict else None
    if json:
        print_json(result.to_json() | {"parameters": job.parameters, "report": str(folder / "report") if report else None})
    else:
        _print_result(job, result, folder)
    end_unless_complete(result.summary)


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model.skops that boolit compare wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV, TSV or Parquet file.")],
    out: Annotated[Path | None, options.out_option("standard output", "CSV file to write.", "FILE")] = None,
) -> None:
    """Predict the target of every row of a table, as CSV.

    The output has a column with the prediction and, for classes, one with the
    probability of each class. Notes about unknown categories go to standard
    error.

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
        error_stream().print(f"Note: {escape(note)}", soft_wrap=True)


def _rates(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(rate) for rate in text.split(",") if rate.strip())
    except ValueError:
        raise UserError(f"--rates {text} are not numbers with commas between; write them as 0.003,0.01,0.03") from None


def _duration(seconds: float) -> str:
    return f"about {seconds / 60:.0f} minutes" if seconds > 90 else f"about {max(2, seconds):.0f} seconds"


def _describe(job: CompareJob) -> None:
    console = error_stream()
    parameters = ", ".join(f"{activation_name(spec, console)} {count:,}" for spec, count in job.parameters.items())
    for line in [*job.description(), *(f"Note: {note}" for note in job.notes), f"Parameters: {parameters}"]:
        console.print(escape(line), soft_wrap=True)


def _print_result(job: CompareJob, result: CompareResult, folder: Path) -> None:
    from boolit.lab.reports.tables import split_tables

    console = output()
    if result.verdict:
        console.print(split_tables(result.verdict, job.plan.study.title, job.parameters)[0])
        console.print(f"\n[bold]{escape(str(result.verdict))}[/]\n")
    for note in result.notes:
        if note not in job.notes:  # those were printed before the training
            console.print(f"Note: {escape(note)}", soft_wrap=True)
    summary = result.summary
    console.print(f"Trained {count_runs(summary.trained)} in {summary.seconds:.0f} s; {summary.already:,} were already done.")
    if result.model:
        console.print(f"Model: {escape(str(result.model))}", soft_wrap=True)
        console.print(f"Report: {escape(str(folder / 'report' / 'report.html'))}", soft_wrap=True)
