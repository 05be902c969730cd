"""Options that several commands share, with their shell completion. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from boolit.errors import UserError
from boolit.lab.catalogue import list_activations, list_studies

TRAINING = "Training"  # a heading of the help
UNFINISHED = 3  # exit code if workers could not train some of the runs
RESULTS = Path("results")  # folder of all results unless --out is given


def complete(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that completes the last of several names with commas between."""

    def complete_last(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete_last


complete_activations = complete(lambda: [entry.spec for entry in list_activations()])


def activations_option(default: str) -> Any:
    """Return the option ``--activations``; ``default`` describes what is used without it."""
    return typer.Option(
        "--activations",
        "-a",
        metavar="A,B,...",
        help="Activations, with commas between; boolit list shows them.",
        show_default=default,
        autocompletion=complete_activations,
    )


def out_option(default: str, help_: str = "Folder of the results.", metavar: str = "DIR") -> Any:
    """Return the option ``--out``; ``default`` describes the place without it."""
    return typer.Option("--out", "-o", metavar=metavar, help=help_, show_default=default)


def format_option(default: str | bool = True) -> Any:
    """Return the option ``--format``."""
    return typer.Option("--format", "-f", help="File format.", show_default=default)


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that boolit run or compare wrote.")]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study that ships with boolit (see boolit list studies), or a .toml file.",
        autocompletion=complete(lambda: [study["name"] for study in list_studies()]),
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        metavar="NAME",
        help="Profile of the study, such as paper; boolit list studies shows them.",
        show_default="quick, if the study has it",
        autocompletion=complete(lambda: sorted({name for study in list_studies() for name in study["profiles"]})),
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the study: training.epochs=20. May be repeated."),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps.",
        autocompletion=complete(lambda: ("auto", "cpu", "cuda", "mps")),
        rich_help_panel=TRAINING,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="Train in N processes of this machine.", rich_help_panel=TRAINING),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Train on a Dask cluster: tcp://host:8786, tls://host:8786 or a scheduler file.",
        rich_help_panel=TRAINING,
    ),
]
CheckpointDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of checkpoints that all workers of a cluster share.",
        show_default="in the folder of the results",
        rich_help_panel=TRAINING,
    ),
]


def split_names(text: str | None) -> tuple[str, ...]:
    """Split the value of ``--activations``.

    Example:
        >>> split_names("relu, or_ail"), split_names(None)
        (('relu', 'or_ail'), ())
    """
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise UserError(f"--activations {text} contains no name; write them as relu,or_ail")
    return names
