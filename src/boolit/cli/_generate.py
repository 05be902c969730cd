"""``boolit data generate``: datasets that are made here, as files to look at or to use elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boolit.cli._terminal import output, plain_table, print_json

Problems = Annotated[int, typer.Option(min=1, help="Problems of each configuration; of ten, six are to train on.")]
Configurations = Annotated[
    list[str] | None, typer.Option("--configuration", metavar="NAME", help="A configuration; all seven if none is named.")
]
Seed = Annotated[int, typer.Option(min=0, help="Another seed makes other problems.")]
Out = Annotated[Path | None, typer.Option(help="The folder to write to; that of the dataset with this seed if not given.")]
Page = Annotated[
    Path | None,
    typer.Option(metavar="PNG", help="Also draw the first problems; of several configurations, each gets its name added."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ON_A_PAGE = 4


def application() -> typer.Typer:
    """The datasets that can be made."""
    app = typer.Typer(help="Make a dataset's files.", rich_markup_mode=None)
    app.callback(invoke_without_command=True)(_help)
    app.command("iraven")(iraven)
    return app


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


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
    """
    from boolit.lab.errors import UserError
    from boolit.lab.raven.configurations import CONFIGURATIONS, configuration_named
    from boolit.lab.raven.files import home

    names = list(dict.fromkeys(configuration or CONFIGURATIONS))
    for name in names:
        configuration_named(name)
    if page and page.suffix.lower() != ".png":
        raise UserError(f"--page {page} is no PNG; give a name that ends in .png")
    folder = out or home(seed)
    made = _made(folder, names, problems, seed)
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


def _made(folder: Path, names: list[str], problems: int, seed: int) -> dict[str, int]:
    from boolit.lab.raven.files import generate, missing
    from boolit.lab.raven.progress import problem_bars

    lacking = {name: len(missing(folder, name, problems)) for name in names}
    with problem_bars() as begin:
        generate(folder, names, problems, seed, begin("making problems", sum(lacking.values())))
    return lacking


def _pages(page: Path, names: list[str], problems: int, seed: int) -> list[Path]:
    from boolit.lab.raven.page import write_page

    paths = [page] if len(names) == 1 else [page.with_name(f"{page.stem}-{name}{page.suffix}") for name in names]
    for path, name in zip(paths, names, strict=True):
        write_page(path, name, seed, range(min(ON_A_PAGE, problems)))
    return paths
