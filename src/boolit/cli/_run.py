"""``boolit run`` and ``boolit search``: train a study and write its report."""

from __future__ import annotations

import csv
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli import _options as options
from boolit.cli import print_error
from boolit.cli._signals import INTERRUPTED, print_interrupted
from boolit.cli._terminal import activation_name, count_runs, output, plain_table, print_json
from boolit.errors import UserError, user_input
from boolit.lab.catalogue import DECODING
from boolit.lab.common.progress import count_progress, show_working

if TYPE_CHECKING:
    from boolit.lab.execute import ExecutionSummary
    from boolit.lab.execute.cluster import Cluster
    from boolit.lab.reports.report import Report
    from boolit.lab.runs import Result, RunConfig
    from boolit.lab.studies import Plan
    from boolit.lab.studies.search import SearchResult

ActivationsOption = Annotated[str | None, options.activations_option("those of the study")]


def run(
    study: options.StudyArgument,
    profile: options.ProfileOption = None,
    activations: ActivationsOption = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds of every activation.", show_default="those of the study")
    ] = None,
    sets: options.SetOption = None,
    hparams: Annotated[Path | None, typer.Option(metavar="FILE", help="Hyper-parameters that boolit search wrote.")] = None,
    device: options.DeviceOption = "auto",
    workers: options.WorkersOption = None,
    cluster: options.ClusterOption = None,
    checkpoint_dir: options.CheckpointDirOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be trained, and stop.")] = False,
    log: Annotated[
        list[str] | None,
        options.training_option("Log every epoch; one log per run. May be repeated.", metavar="tensorboard|wandb|mlflow|csv"),
    ] = None,
    out: Annotated[Path | None, options.out_option("results/STUDY-PROFILE")] = None,
    json: options.JsonOption = False,
) -> None:
    """Train a study and report which activation is better.

    Runs that are already in the results folder are not trained again. Ctrl-C
    or a kill loses no finished run, and the same command resumes. Under
    torchrun all processes train each network together; with --workers or
    --cluster every process trains its own networks.

    Examples:
      boolit run parity
      boolit run covertype-2 --profile paper --workers 4
      boolit run parity --activations relu,xnor_ail --seeds 10
      boolit run my-study.toml --set training.epochs=20 --dry-run
      boolit run parity --log tensorboard
      boolit run decoding
    """
    if study == DECODING["name"]:
        unused = {"--activations": activations, "--seeds": seeds, "--set": sets, "--hparams": hparams, "--workers": workers}
        unused |= {"--cluster": cluster, "--checkpoint-dir": checkpoint_dir, "--log": log}
        unused["--device"] = None if device == "auto" else device
        _run_decoding(profile or "quick", [option for option, value in unused.items() if value], dry_run, out, json)
        return
    from boolit.lab.common.devices import use_device
    from boolit.lab.datasets import load
    from boolit.lab.execute import execute
    from boolit.lab.execute.loggers import open_logger
    from boolit.lab.paper.figures.networks import pictures
    from boolit.lab.reports.report import write_report
    from boolit.lab.results.store import Store
    from boolit.lab.studies import load_study, plan, save
    from boolit.lab.training.distributed import is_leader, leader_first, processes, size

    shown = False if json else None
    with processes(), use_device(local_device(device, cluster)) as chosen:
        if size() > 1 and (chosen.type not in ("cpu", "cuda") or ":" in device):
            raise UserError(f"--device {device} is a single device, but every process of torchrun needs one; use cuda or cpu")
        with leader_first():
            with show_working("planning the runs", shown):
                planned = plan(load_study(study), profile, seeds, [*(sets or ()), *_sweep(activations)], hparams)
            if dry_run:
                _print_plan(planned, json)
                return
            folder = out or options.RESULTS / "-".join(filter(None, (planned.name, planned.profile)))
            # Other processes, and the machines of a cluster, load their data when they train.
            if cluster is None and is_leader() and not _is_complete(planned, folder):
                with user_input():
                    load(planned.study.data)  # the leader downloads, before anything is written
        if not is_leader():
            execute(planned, None)
            return
        loggers = [open_logger(name, folder) for name in log or ()]
        with Store(folder) as store, store.writing(), open_cluster(workers, cluster, device) as workers_used:
            save(planned, folder, command=this_command())
            summary = execute(
                planned, store, progress=shown, cluster=workers_used, checkpoint_dir=checkpoint_dir, loggers=loggers
            )
        with show_working("writing the report", shown):
            report = write_report(folder, pictures)
        if json:
            print_json(_report_entry(report, summary))
        else:
            _print_report(report, summary)
    end_unless_complete(summary)


def _run_decoding(profile: str, unused: Sequence[str], dry_run: bool, out: Path | None, json: bool) -> None:
    from boolit.lab.decoding import DECODERS, ITERATIONS, PARTS, PROFILES, RATES, measure

    if unused:
        raise UserError(f"{', '.join(unused)} does not apply to the study decoding, which trains no networks; leave it out")
    if profile not in PROFILES:
        raise UserError(f"the study decoding has no profile {profile!r}; choose {' or '.join(PROFILES)}")
    settings, console = PROFILES[profile], output()
    if dry_run:
        entry = {"name": "decoding", "profile": profile, **settings, "rates": RATES, "decoders": DECODERS}
        lines = [f"{code}: flip rates {', '.join(map(str, rates))}" for code, rates in RATES.items()]
        text = "{shots:,} shots of each, for {0}; {steps:,} steps to learn the weights of a code"
        print_json(entry) if json else print(*lines, text.format(", ".join(DECODERS), **settings), sep="\n")
        return
    with count_progress(False if json else None) as begin:
        rows = measure(**settings, advance=begin("decoding", PARTS))
    path = (out or options.RESULTS / f"decoding-{profile}") / "decoding.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    if json:
        print_json({"profile": profile, "file": str(path), "failures": rows})
        return
    table = plain_table("code", "flips", *DECODERS, right=("flips", *DECODERS))
    for row in rows:
        shares = [row[name] / row["shots"] for name in DECODERS]
        cells = [f"{100 * p:.2f} ± {100 * (p * (1 - p) / row['shots']) ** 0.5:.2f}" for p in shares]
        table.add_row(row["code"], f"{row['rate']}", *cells)
    console.print(table)
    console.print(f"\nFrames that fail in %, ± standard error, after {ITERATIONS} iterations. Of each code and")
    console.print(f"flip rate, the decoders share {settings['shots']:,} shots.\nTable: {escape(str(path))}", soft_wrap=True)


def search(
    study: options.StudyArgument,
    profile: options.ProfileOption = None,
    activations: ActivationsOption = None,
    sets: options.SetOption = None,
    rounds: Annotated[int, options.training_option("Rounds of random settings.", min=1, max=100)] = 4,
    trials: Annotated[int, options.training_option("Settings of a round.", min=5, max=10_000)] = 120,
    seeds: Annotated[int, options.training_option("Seeds of the ten best settings.", min=2, max=100_000)] = 120,
    device: options.DeviceOption = "auto",
    workers: options.WorkersOption = None,
    cluster: options.ClusterOption = None,
    checkpoint_dir: options.CheckpointDirOption = None,
    out: Annotated[Path | None, options.out_option("results/STUDY-search")] = None,
    json: options.JsonOption = False,
) -> None:
    """Search hyper-parameters as the paper does.

    Every round tries random settings within bounds that tighten; then the ten
    best settings are trained with many seeds. The search chooses on validation
    rows, or on a fifth of the training rows if there are none, and never reads
    test rows. After an interruption, the same command resumes.

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
    from boolit.lab.studies.search import search as search_settings

    if study == DECODING["name"]:
        raise UserError("the study decoding trains no networks, so it has nothing to search; use boolit run decoding")
    planned = plan_search(load_study(study), profile, [*(sets or ()), *_sweep(activations)])
    folder, shown = out or options.RESULTS / f"{planned.name}-search", False if json else None
    length = {"rounds": rounds, "trials": trials, "seeds": seeds}
    with (
        use_device(local_device(device, cluster)),
        Store(folder) as store,
        store.writing(),
        open_cluster(workers, cluster, device) as workers_used,
    ):
        save(planned, folder, "search", this_command(), search=length)

        def train(configs: Sequence[RunConfig]) -> list[Result] | None:
            return train_configs(configs, planned, store, progress=shown, cluster=workers_used, checkpoint_dir=checkpoint_dir)

        results = search_settings(planned, train, **length)
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
        _print_search(results, study, profile, path, planned.study.metric.solved is not None)


def this_command() -> str:
    """Return the command line of this process."""
    return shlex.join(["boolit", *sys.argv[1:]])


def local_device(device: str, cluster: str | None) -> str:
    """Return the device of this process. With ``--cluster``, the option ``--device`` is for the workers."""
    return device if cluster is None else "auto"


def open_cluster(workers: int | None, address: str | None, device: str) -> AbstractContextManager[Cluster | None]:
    """Return the workers that ``--workers`` or ``--cluster`` ask for, or None if neither is given."""
    from boolit.lab.training.distributed import size

    if workers is None and address is None:
        return nullcontext()
    if workers is not None and address is not None:
        raise UserError(f"--workers {workers} and --cluster {address} cannot be combined; leave one out")
    if size() > 1:
        option = f"--workers {workers}" if address is None else f"--cluster {address}"
        raise UserError(f"{option} does not work under torchrun; leave it out or start boolit without torchrun")
    from boolit.lab.execute.cluster import Cluster

    with show_working("starting the workers" if address is None else "connecting to the cluster"):
        return Cluster.open(workers, address, device)


def end_unless_complete(summary: ExecutionSummary) -> None:
    """End the command if it was interrupted or if workers could not train some runs."""
    if summary.interrupted:
        print_interrupted()
        raise typer.Exit(INTERRUPTED)
    if summary.failures:
        print_error(f"{summary.failed_message}; all others are done, and the same command tries these again")
        raise typer.Exit(options.UNFINISHED)


def _is_complete(planned: Plan, folder: Path) -> bool:
    from boolit.lab.results.store import Store

    with Store(folder) as store:
        keys = {each.key for each in planned.runs}
        return store.path.is_file() and store.finished(keys) == keys


def _sweep(activations: str | None) -> list[str]:
    """Return the change of the study that ``--activations`` stands for."""
    from boolit.nn import activation

    names = list(options.split_names(activations))
    with user_input():
        for name in names:
            activation(name)
    return [] if activations is None else [f"sweep.activation={names}"]


def _print_plan(planned: Plan, json: bool) -> None:
    from boolit.lab.datasets import describe
    from boolit.lab.studies.budgets import StepTimer, sizes

    study, first = planned.study, {(each.activation, each.widths): each for each in planned.runs}
    counts, timer = Counter((each.activation, each.widths) for each in planned.runs), None
    if study.sweep.step_time or study.sweep.timed:
        params, depth = (study.sweep.params or [planned.runs[0].parameters])[0], planned.runs[0].depth
        timer = StepTimer(study.model, describe(study.data), study.training, params, depth)
    entries = sizes(list(first.values()), bool(study.sweep.flops), timer)
    rows = [entry | {"runs": counts[shape]} for shape, entry in zip(first, entries, strict=True)]
    if json:
        entry = {"name": planned.name, "title": planned.study.title, "profile": planned.profile, "runs": rows}
        print_json({**entry, "study": planned.study.model_dump(mode="json")})
        return
    console = output()
    profile = f"profile {planned.profile}" if planned.profile else "no profile"
    console.print(f"[bold]{escape(planned.study.title)}[/] ({escape(profile)})\n")
    titles = {"parameters": "parameters", "outputs": "outputs", "flops": "flops", "step_time": "step / ReLU's", "runs": "runs"}
    shown = {name: title for name, title in titles.items() if any(name in row for row in rows)}
    table = plain_table("activation", "widths", *shown.values(), right=tuple(shown.values()))
    for row in rows:
        texts = [f"{row[name]:{'.2f' if name == 'step_time' else ','}}" if name in row else "" for name in shown]
        table.add_row(escape(activation_name(row["activation"], console)), escape(row["widths"]), *texts)
    console.print(table)
    console.print(f"\n{count_runs(len(planned.runs))}")


def _print_report(report: Report, summary: ExecutionSummary) -> None:
    console = output()
    if report.section.unfinished:
        console.print(f"[bold]{escape(report.section.unfinished)}[/]\n")
    for table in report.tables:
        console.print(table)
        console.print()
    if report.verdict:
        console.print(f"[bold]{escape(report.verdict)}[/]\n")
    if summary.interrupted:
        console.print(f"Stopped with {count_runs(summary.remaining)} to go.")
    console.print(f"Trained {count_runs(summary.trained)} in {summary.seconds:.0f} s; {summary.already:,} were already done.")
    if report.page:
        console.print(f"Report: {escape(str(report.page))}", soft_wrap=True)


def _report_entry(report: Report, summary: ExecutionSummary) -> dict[str, Any]:
    from boolit.lab.results.statistics import COVERAGE

    counts = ("already", "trained", "diverged", "remaining", "failed", "seconds")
    return {
        "complete": not report.section.unfinished,
        "unfinished": report.section.unfinished or None,
        "verdict": report.verdict or None,
        "covers": COVERAGE,
        "summary": {name: getattr(summary, name) for name in counts},
        "failures": [f"{failure.cohort}: {failure.reason}" for failure in summary.failures],
        **report.to_json(),
    }


def _print_search(results: list[SearchResult], study: str, profile: str | None, path: Path, solved: bool) -> None:
    from boolit.lab.common.plugins import named_plugins

    console = output()
    names = ["mean", *(["solved"] if solved else []), *results[0].setting]
    table = plain_table("activation", *names, right=tuple(names))
    for result in results:
        best = result.finalists[0]
        values = [f"{value:.7g}" for value in best.setting.values()]
        values = [f"{best.solved:.0%}", *values] if solved else values
        table.add_row(escape(activation_name(result.activation, console)), f"{best.mean:.4f}", *values)
    console.print(table)
    for rows in dict.fromkeys(result.rows for result in results):
        console.print(escape(rows))
    console.print(f"Report: {escape(str(path.parent / 'report' / 'report.html'))}", soft_wrap=True)
    words = [word for name in named_plugins() for word in ("--plugin", name)]
    words += ["run", study, *(["--profile", profile] if profile else []), "--hparams", str(path)]
    console.print(f"\nUse it with: boolit {escape(shlex.join(words))}", soft_wrap=True)
