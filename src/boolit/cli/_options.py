"""Options that several commands share, with their shell completion. Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boolit.errors import UserError
from boolit.lab.catalogue import list_activations, list_studies

UNFINISHED = 3  # exit code if workers could not train some of the runs
RESULTS = Path("results")  # folder of all results unless --out is given


def complete_activations(incomplete: str) -> list[str]:
    """Complete the last of several activations for the shell."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{entry.spec}" for entry in list_activations() if entry.spec.startswith(last)]


def complete_studies(incomplete: str) -> list[str]:
    """Complete the name of a study for the shell."""
    return [study["name"] for study in list_studies() if study["name"].startswith(incomplete)]


def activations_option(default: str) -> Any:
    """Return the option ``--activations``; the help shows ``default`` as a description of its default."""
    help_ = "Activations, with commas between; boolit list shows them."
    complete = complete_activations
    return typer.Option("--activations", "-a", metavar="A,B,...", help=help_, show_default=default, autocompletion=complete)


def training_option(help_: str, metavar: str = "N", **settings: Any) -> Any:
    """Return an option of the help's section on training."""
    return typer.Option(metavar=metavar, help=help_, rich_help_panel="Training", **settings)


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
    typer.Argument(metavar="STUDY", help="A study (see boolit list studies) or a .toml file.", autocompletion=complete_studies),
]
ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", "-p", metavar="NAME", help="Profile of the study.", show_default="quick, if the study has it"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the study: training.epochs=20. May be repeated."),
]
DeviceOption = Annotated[str, training_option("Device: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps.", "NAME")]
WorkersOption = Annotated[int | None, training_option("Train in N processes of this machine.", min=1, max=1024)]
ClusterOption = Annotated[
    str | None,
    training_option("Train on a Dask cluster: tcp://host:8786, tls://host:8786 or a scheduler file.", "ADDRESS"),
]
CheckpointDirOption = Annotated[
    Path | None,
    training_option("Folder of checkpoints that all workers of a cluster share.", "DIR", show_default="in the results folder"),
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
