"""``boolit list``, ``fetch`` and ``doctor``: what can be chosen, downloaded and used on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape

from boolit.cli._options import JsonOption
from boolit.cli._terminal import output, plain_table, print_json
from boolit.lab.catalogue import list_activations, list_studies


class Listing(NamedTuple):
    """A list for programs (``entries``) and for people. The first cell of a row is the heading of its group."""

    entries: list[dict[str, Any]]
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: str


def list_(
    kind: Annotated[
        Literal["activations", "studies", "figures"], typer.Argument(metavar="KIND", help="What to list.")
    ] = "activations",
    json: JsonOption = False,
) -> None:
    """List activations, studies or figures.

    These are the names that boolit compare, run and figures take.

    Examples:
      boolit list
      boolit list studies
      boolit list figures --json
    """
    listing = LISTINGS[kind]()
    if json:
        print_json(listing.entries)
        return
    table = plain_table(*listing.columns)
    for heading, rows in groupby(listing.rows, key=lambda row: row[0]):
        if heading:
            table.add_row(f"\n[bold]{escape(heading)}[/]")
        for _, *cells in rows:
            table.add_row(*map(escape, cells))
    output().print(table)
    output().print(f"\n{listing.notes}", markup=False, style="dim")


def _activations() -> Listing:
    rows, entries = [], []
    for facts in list_activations():
        arrow, factor = f"{facts.channels[0]}→{facts.channels[1]}", Fraction(facts.channels[1], facts.channels[0])
        rows.append((f"{arrow} {facts.kind}s", facts.spec, arrow, str(facts.width_multiple), str(factor), facts.description))
        entries.append({**vars(facts), "feature_factor": float(factor)})
    notes = (
        "channels: in → out of a group. factor: channels out per channel in. A width is a multiple of the width multiple.\n"
        "Suffixes: _kN groups N channels (or_ail_k3); _halves pairs channel i with i + C/2, as GLU does (xnor_il_halves).\n"
        "Duplicates (_d) give every gate every group; partitions (_p, or _pu if uneven) give each gate its share.\n"
        "Other ensembles: join gates with _ (and_xor_il_d), or any activations with + (max+xnor_ail_d)."
    )
    return Listing(entries, ("spec", "channels", "width multiple", "factor", "computes"), rows, notes)


def _studies() -> Listing:
    entries = list_studies()
    rows = [("", entry["name"], ", ".join(entry["profiles"]), entry["title"]) for entry in entries]
    return Listing(entries, ("study", "profiles", "title"), rows, "boolit run STUDY trains a study, or your own .toml file.")


def _figures() -> Listing:
    from boolit.lab.paper.figures import FIGURES

    entries = [{"name": name, "label": figure.label, "caption": figure.caption} for name, figure in FIGURES.items()]
    rows = [("", name, figure.label or "–", figure.caption.partition(". ")[0]) for name, figure in FIGURES.items()]
    return Listing(entries, ("figure", "in the paper", "shows"), rows, "boolit figures NAME draws a figure.")


LISTINGS = {"activations": _activations, "studies": _studies, "figures": _figures}


def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Datasets such as mnist, or weights (of the encoder).")],
) -> None:
    """Download the files of datasets, or tell how to get them by hand.

    Files are kept in the folder BOOLIT_DATA. A study downloads what it needs
    by itself.

    Examples:
      boolit fetch mnist
      boolit fetch cifar10 weights
    """
    from boolit.errors import UserError, user_input
    from boolit.lab.datasets import download, source_type
    from boolit.lab.datasets.download import PublishedDataset
    from boolit.lab.datasets.embeddings import WEIGHTS

    files: dict[str, Sequence[download.PublishedFile]] = {}
    with user_input():
        for name in names:
            kind = None if name == WEIGHTS.dataset else source_type(name)
            files[name] = (WEIGHTS,) if kind is None else kind.files if issubclass(kind, PublishedDataset) else ()
    missing = [file for needed in files.values() for file in needed if file.here is None]
    by_hand = [file for file in missing if not file.urls]
    for file in by_hand:
        print(f"{file.name} of {file.dataset} has to be fetched by hand: {file.fix}")
    for name, needed in files.items():
        if not needed:
            print(f"{name} needs no files")
        for file in needed:
            if file not in by_hand:
                print(f"{download.fetch(file)}: {'downloaded' if file in missing else 'already here'}")
    if by_hand:
        raise UserError(f"{', '.join(file.name for file in by_hand)} cannot be downloaded; fetch by hand what is listed above")


def doctor(json: JsonOption = False) -> None:
    """Show what is active on this machine, and what is missing.

    Versions, compiled kernels, devices, optional packages and the data folder.
    Problems are warnings with their fixes; the exit code is always 0.

    Examples:
      boolit doctor
      boolit doctor --json
    """
    from boolit.cli._doctor import print_facts

    print_facts(json)
