"""What several commands take: activations, a study, a folder, a choice; and what a shell completes of each, without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from boolit.cli._terminal import OUTPUT
from boolit.errors import UserError

WHAT, TRAINING, TESTS = "What to compare", "Training", "Statistics"  # groups of a help text, with OUTPUT
UNFINISHED = 3  # the exit code if workers could not train some of the runs
RESULTS = Path("results")  # the folder under which everything is written unless --out names another


class Task(str, Enum):
    """What a table's target asks for."""

    CLASSIFY = "classify"
    REGRESS = "regress"


class Kind(str, Enum):
    """What `boolit list` shows."""

    ACTIVATIONS = "activations"
    STUDIES = "studies"
    FIGURES = "figures"


class DrawingFormat(str, Enum):
    """How a figure is written."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


class TableFormat(str, Enum):
    """How a table of the paper is written."""

    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"
    CSV = "csv"


class RunsFormat(str, Enum):
    """How a table of runs is written."""

    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


class FloatType(str, Enum):
    """What a tensor's numbers are."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def values(kind: type[Enum]) -> str:
    """The values of a choice, as the help shows them.

    Example:
        >>> values(Task)
        'classify|regress'
    """
    return "|".join(str(each.value) for each in kind)


# What a shell completes. Typer calls these with what was typed so far.


def complete_studies(incomplete: str) -> list[str]:
    from boolit.lab.catalogue import STUDIES

    return sorted(path.stem for path in STUDIES.glob(f"{_plain(incomplete)}*.toml"))


def complete_profiles(incomplete: str) -> list[str]:
    """Those of the study on the line, which the parser has not reached at an option without its value."""
    from boolit.lab.catalogue import list_studies

    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    entries = list_studies()
    chosen = [entry for entry in entries if entry["name"] in line.split()] or entries
    return sorted({name for entry in chosen for name in entry["profiles"] if name.startswith(incomplete)})


def complete_activations(incomplete: str) -> list[str]:
    """The last of several names; those before it are kept."""
    from boolit.lab.catalogue import list_activations

    before, comma, last = incomplete.rpartition(",")
    names = [entry.spec for entry in list_activations() if entry.spec.startswith(last)]
    return [f"{before}{comma}{name}" for name in names if name not in before.split(",")]


def complete_figures(incomplete: str) -> list[str]:
    from boolit.lab.paper.figures import FIGURES

    return [name for name in FIGURES if name.startswith(incomplete)]


def complete_tables(incomplete: str) -> list[str]:
    """Without the ``tab:`` of their labels: a shell takes a colon for the end of a word."""
    from boolit.lab.paper import tables

    return [name for label in tables() if (name := label.removeprefix("tab:")).startswith(incomplete)]


def complete_names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes the last of several names with commas between."""
    names = list(known)

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum() or letter in "-_")


# The options.


def activations_option(more: str = "", **settings: Any) -> Any:
    """``--activations a,b``, the same in every command; ``more`` is added to its help."""
    return typer.Option(
        "--activations",
        "-a",
        metavar="A,B,...",
        help=f"Activations, with commas between; boolit list shows them.{more and f' {more}'}",
        autocompletion=complete_activations,
        rich_help_panel=WHAT,
        **settings,
    )


def out_option(default: str, help_: str = "Folder of the results.") -> Any:
    """``--out``, the same in every command; ``default`` says where it is unless given."""
    return typer.Option("--out", "-o", metavar="DIR", help=help_, show_default=default, rich_help_panel=OUTPUT)


StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study that ships with boolit (boolit list studies), or a .toml file.",
        autocompletion=complete_studies,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        "-p",
        metavar="NAME",
        help="One of the study's profiles, such as paper; boolit show STUDY names them.",
        show_default="quick, if the study has it",
        autocompletion=complete_profiles,
        rich_help_panel=WHAT,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the study, such as training.epochs=20; may be repeated.",
        rich_help_panel=WHAT,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Where to train: auto (a CUDA GPU if there is one), cpu, cuda, cuda:1, mps; boolit doctor shows what is here.",
        autocompletion=complete_names(("auto", "cpu", "cuda", "mps")),
        rich_help_panel=TRAINING,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        max=1024,
        metavar="N",
        help="Train in so many processes of this machine, which share its threads and memory.",
        show_default="in this one",
        rich_help_panel=TRAINING,
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Train on a Dask cluster: tcp://host:8786, tls://host:8786, or the file its scheduler wrote.",
        rich_help_panel=TRAINING,
    ),
]
CheckpointDirOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint-dir",
        metavar="DIR",
        help="Folder of checkpoints that all workers of a cluster share, so that a lost worker's runs resume.",
        show_default="in the folder of the results",
        rich_help_panel=TRAINING,
    ),
]
FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that boolit run or compare wrote.")]


def split_names(given: str | None) -> tuple[str, ...]:
    """Names with commas between.

    Example:
        >>> split_names("relu, or_ail"), split_names(None)
        (('relu', 'or_ail'), ())
    """
    names = tuple(name.strip() for name in (given or "").split(",") if name.strip())
    if given is not None and not names:
        raise UserError(f"--activations {given} names none; write them as relu,or_ail")
    return names


def check_names(names: Iterable[str], known: Iterable[str], option: str) -> None:
    """Refuses a name that is not known, with those near it.

    Example:
        >>> check_names(["mapz"], ["maps", "sran"], "--only")
        Traceback (most recent call last):
        boolit.errors.UserError: --only 'mapz' is not one of maps, sran; did you mean maps?
    """
    known = list(known)
    for name in names:
        if name not in known:
            raise UserError(f"{option} {name!r} is not one of {', '.join(known)}{suggest(name, known)}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Asks whether a name near the given one was meant; nothing if none is near."""
    near = get_close_matches(name, list(known), n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""
