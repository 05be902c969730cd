"""``boolit run``, ``show`` and ``search``: studies from their file to their report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli import print_error
from boolit.cli._options import (
    RESULTS,
    TRAINING,
    UNFINISHED,
    WHAT,
    CheckpointDirOption,
    ClusterOption,
    DeviceOption,
    ProfileOption,
    SetOption,
    StudyArgument,
    WorkersOption,
    activations_option,
    out_option,
    split_names,
)
from boolit.cli._signals import INTERRUPTED, print_interrupted
from boolit.cli._terminal import (
    OUTPUT,
    JsonOption,
    activation_name,
    offer_to_open,
    output,
    plain_table,
    print_json,
    wrap,
)
from boolit.errors import UserError, user_input
from boolit.lab.common.progress import show_working

if TYPE_CHECKING:
    from boolit.lab.execute import ExecutionSummary
    from boolit.lab.execute.cluster import Cluster
    from boolit.lab.reports.report import Report
    from boolit.lab.runs import Result, RunConfig
    from boolit.lab.studies.search import SearchResult


def run(
    study: StudyArgument,
    profile: ProfileOption = None,
    activations: Annotated[str | None, activations_option(show_default="those of the study")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=1, metavar="N", help="Trainings of each.", show_default="as the study has it", rich_help_panel=WHAT
        ),
    ] = None,
    sets: SetOption = None,
    hparams: Annotated[
        Path | None,
        typer.Option("--hparams", metavar="FILE", help="Hyper-parameters that boolit search wrote.", rich_help_panel=WHAT),
    ] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    checkpoint_dir: CheckpointDirOption = None,
    out: Annotated[Path | None, out_option("results/STUDY-PROFILE")] = None,
    offer: Annotated[
        bool,
        typer.Option("--offer", help="On a desktop, ask at the end whether to open the report.", rich_help_panel=OUTPUT),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train a study and say which activation is better.

    Runs that are in the output folder already are not trained again. Ctrl-C or a kill loses no finished run; the same command
    resumes. Under torchrun, its processes train every network together; with --workers or --cluster, many processes train
    different networks.

    Examples:
      boolit run parity
      boolit run covertype-2 --profile paper --workers 4
      boolit run parity --activations relu,xnor_ail --seeds 10
      boolit run my-study.toml --set training.epochs=20
    """
    from boolit.lab.common.devices import use_device
    from boolit.lab.datasets import load
    from boolit.lab.execute import execute
    from boolit.lab.paper.figures.trained import pictures
    from boolit.lab.reports.report import write_report
    from boolit.lab.results.store import Store
    from boolit.lab.studies import load_study, plan, save
    from boolit.lab.training.distributed import is_leader, leader_first, processes, size

    shown = False if json else None
    with processes(), use_device(local_device(device, cluster)) as chosen:
        if size() > 1 and (chosen.type not in ("cpu", "cuda") or ":" in device):
            raise UserError(f"--device {device} is one device, and torchrun's processes have one each; write cuda or cpu")
        with leader_first():
            with show_working("planning the runs", shown):
                planned = plan(load_study(study), profile, seeds, [*(sets or ()), *_sweep(activations)], hparams)
            with user_input():
                if cluster is None:  # the machines of a cluster load their own data
                    load(planned.study.data)  # fetched by the leader, and before anything is written
        if not is_leader():
            execute(planned, None)
            return
        folder = out or RESULTS / "-".join(filter(None, (planned.name, planned.profile)))
        with Store(folder) as store, store.writing(), open_cluster(workers, cluster, device) as on:
            save(planned, folder, command=this_command())
            summary = execute(planned, store, progress=shown, cluster=on, checkpoint_dir=checkpoint_dir)
        with show_working("writing the report", shown):
            report = write_report(folder, pictures)
        show_report(report, summary, json)
    if offer and report.page and not json:
        offer_to_open(report.page)


def this_command() -> str:
    """Return the command line of this process."""
    return shlex.join(["boolit", *sys.argv[1:]])


def local_device(device: str, cluster: str | None) -> str:
    """What ``--device`` means for this process: where a cluster of other machines trains, the device is theirs."""
    return device if cluster is None else "auto"


def open_cluster(workers: int | None, address: str | None, device: str) -> AbstractContextManager[Cluster | None]:
    """The workers that ``--workers`` or ``--cluster`` ask for; None if neither is given."""
    from boolit.lab.training.distributed import size

    if workers is None and address is None:
        return nullcontext()
    if workers is not None and address is not None:
        raise UserError(f"--workers {workers} is this machine and --cluster {address} is another; give one of them")
    if size() > 1:
        option = f"--workers {workers}" if address is None else f"--cluster {address}"
        raise UserError(f"{option} is for a single process; leave it out under torchrun")
    from boolit.lab.execute.cluster import Cluster

    with show_working("starting the workers" if address is None else "connecting to the cluster"):
        return Cluster.open(workers, address, device)


def _sweep(activations: str | None) -> list[str]:
    """The change of a study that leaves these activations."""
    from boolit.nn import activation

    names = list(split_names(activations))
    with user_input():
        for name in names:
            activation(name)
    return [] if activations is None else [f"sweep.activation={names}"]


def show_report(report: Report, summary: ExecutionSummary, json: bool, more: Mapping[str, Any] | None = None) -> None:
    """Print a report, and end the command if runs are missing.

    ``more`` is added to the JSON output; its ``notes`` are also printed for people.
    """
    more = more or {}
    if json:
        print_json({**_entry(report, summary), **more})
    else:
        _print(report, summary, more.get("notes", ()))
    end_unless_complete(summary)


def end_unless_complete(summary: ExecutionSummary) -> None:
    """End the command if it was interrupted or if workers could not train some runs."""
    if summary.interrupted:
        print_interrupted()
        raise typer.Exit(INTERRUPTED)
    if summary.failures:
        print_error(f"{summary.failed_message}; all others are done, and the same command tries these again")
        raise typer.Exit(UNFINISHED)


def show(
    study: StudyArgument,
    profile: ProfileOption = None,
    activations: Annotated[str | None, activations_option(show_default="those of the study")] = None,
    sets: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a study would train: its runs by activation and size.

    Examples:
      boolit show parity
      boolit show covertype-1 --profile paper
      boolit show parity --set sweep.depth=[2,3]
    """
    from boolit.lab.studies import load_study, plan

    file = load_study(study)
    with show_working("planning the runs", False if json else None):
        planned = plan(file, profile, sets=[*(sets or ()), *_sweep(activations)])
    shapes: dict[tuple[str, str, int], int] = {}
    for each in planned.runs:
        name = (each.activation, "-".join(map(str, each.widths)), each.parameters)
        shapes[name] = shapes.get(name, 0) + 1
    rows = [{"activation": a, "widths": w, "parameters": p, "runs": n} for (a, w, p), n in shapes.items()]
    entry = {"name": file.name, "title": file.title, "profiles": file.profiles, "profile": planned.profile}
    if json:
        print_json({**entry, "runs": rows, "study": planned.study.model_dump(mode="json")})
        return
    _print_plan(entry, rows)


def _print(report: Report, summary: ExecutionSummary, notes: Sequence[str] = ()) -> None:
    from boolit.lab.reports.tables import terminal_table

    console = output()
    if report.unfinished:
        console.print(f"[bold]{escape(report.unfinished)}[/]\n")
    for table in report.tables:
        console.print(terminal_table(table, console.width))
        console.print()
    if report.verdict:
        console.print(f"[bold]{escape(wrap(report.verdict, console.width))}[/]\n", soft_wrap=True)
    for note in notes:
        console.print(f"Note: {escape(note)}", soft_wrap=True)
    if summary.interrupted:
        console.print(f"Stopped with {summary.remaining:,} runs to go.")
    console.print(
        f"{summary.trained:,} runs trained in {summary.seconds:.0f} s, {summary.already:,} were in the folder already."
    )
    if report.page:
        console.print(f"Report: {escape(str(report.page))}", soft_wrap=True)


def _entry(report: Report, summary: ExecutionSummary) -> dict[str, Any]:
    from boolit.lab.results.statistics import COVERAGE

    return {
        "complete": not report.unfinished,
        "unfinished": report.unfinished or None,
        "verdict": report.verdict or None,
        "covers": COVERAGE,
        "summary": {
            name: getattr(summary, name) for name in ("already", "trained", "diverged", "remaining", "failed", "seconds")
        },
        "failures": [f"{failure.cohort}: {failure.reason}" for failure in summary.failures],
        **report.to_json(),
    }


def _print_plan(entry: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    console = output()
    chosen = f"Profile {entry['profile']}" if entry["profile"] else "As it stands, without a profile"
    offered = f"; it has {', '.join(entry['profiles'])}" if entry["profiles"] else ""
    console.print(f"[bold]{escape(entry['title'])}[/]\n{escape(chosen + offered)}\n")
    table = plain_table("activation", "widths", "parameters", "runs", right=("parameters", "runs"))
    for row in rows:
        name, widths, parameters, runs = row.values()
        table.add_row(escape(activation_name(name, console)), escape(widths), f"{parameters:,}", f"{runs:,}")
    console.print(table)
    console.print(f"\n{sum(row['runs'] for row in rows):,} runs")


def search(
    study: StudyArgument,
    profile: ProfileOption = None,
    activations: Annotated[str | None, activations_option(show_default="those of the study")] = None,
    sets: SetOption = None,
    rounds: Annotated[
        int,
        typer.Option("--rounds", min=1, max=100, metavar="N", help="Rounds of random settings.", rich_help_panel=TRAINING),
    ] = 4,
    trials: Annotated[
        int,
        typer.Option("--trials", min=5, max=10_000, metavar="N", help="Settings of a round.", rich_help_panel=TRAINING),
    ] = 120,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=2,
            max=100_000,
            metavar="N",
            help="Trainings of each of the ten best settings.",
            rich_help_panel=TRAINING,
        ),
    ] = 120,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    checkpoint_dir: CheckpointDirOption = None,
    out: Annotated[Path | None, out_option("results/STUDY-search")] = None,
    json: JsonOption = False,
) -> None:
    """Search hyper-parameters as the paper does.

    Random settings, with bounds that tighten after each round; then the ten best settings of all rounds with many seeds. The
    search chooses by the data's validation rows, or by a fifth of the training rows if there are none, and never reads test
    rows. Interrupted, the same command resumes.

    Examples:
      boolit search parity
      boolit search parity --activations relu,xnor_ail --rounds 2 --trials 20
      boolit run parity --hparams results/parity-search/hparams.toml
    """
    from boolit.lab.common.devices import use_device
    from boolit.lab.execute import train_configs
    from boolit.lab.reports.report import write_report
    from boolit.lab.results.store import Store
    from boolit.lab.studies import load_study, save
    from boolit.lab.studies.search import hparams_to_toml, plan_search
    from boolit.lab.studies.search import search as find

    planned = plan_search(load_study(study), profile, [*(sets or ()), *_sweep(activations)])
    folder, shown = out or RESULTS / f"{planned.name}-search", False if json else None
    length = {"rounds": rounds, "trials": trials, "seeds": seeds}
    with (
        use_device(local_device(device, cluster)),
        Store(folder) as store,
        store.writing(),
        open_cluster(workers, cluster, device) as on,
    ):
        save(planned, folder, "search", this_command(), search=length)

        def train(configs: Sequence[RunConfig]) -> list[Result] | None:
            return train_configs(configs, planned, store, progress=shown, cluster=on, checkpoint_dir=checkpoint_dir)

        results = find(planned, train, **length)
        if results is not None:
            save(planned, folder, "search", this_command(), search=length, results=[each.to_json() for each in results])
    write_report(folder)
    if results is None:
        print_interrupted()
        raise typer.Exit(INTERRUPTED)
    path = folder / "hparams.toml"
    path.write_text(hparams_to_toml({each.activation: each.setting for each in results}, f"found for {planned.name}"), "utf-8")
    if json:
        print_json({"hparams": str(path), "found": [each.to_json() for each in results]})
    else:
        _print_search(results, study, path)


def _print_search(found: list[SearchResult], study: str, path: Path) -> None:
    console = output()
    names = list(found[0].setting)
    table = plain_table("activation", "mean", "solved", *names, right=("mean", "solved", *names))
    for one in found:
        best = one.finalists[0]
        values = (f"{value:.3g}" for value in best.setting.values())
        table.add_row(escape(activation_name(one.activation, console)), f"{best.mean:.4f}", f"{best.solved:.0%}", *values)
    console.print(table)
    for rows in dict.fromkeys(one.rows for one in found):
        console.print(escape(rows))
    console.print(f"Report: {escape(str(path.parent / 'report' / 'report.html'))}", soft_wrap=True)
    console.print(f"\nUse it with: boolit run {escape(study)} --hparams {escape(str(path))}", soft_wrap=True)
