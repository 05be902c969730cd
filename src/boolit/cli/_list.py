"""``boolit list``: what there is to choose from.

A kind of thing is a function that returns a `Listing`, and one line in `LISTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._terminal import output, plain_table, print_json
from boolit.lab.errors import UserError


@dataclass(frozen=True)
class Listing:
    """Groups of rows for people, with notes below; ``entries`` for programs."""

    columns: Sequence[str]
    groups: Mapping[str, Sequence[Sequence[str]]]
    entries: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


def activations() -> Listing:
    """Every activation by its map."""
    from boolit.lab import catalogue

    groups: dict[str, list[tuple[str, ...]]] = {}
    entries = catalogue.activations()
    for entry in entries:
        row = (entry.spec, entry.arrow, str(entry.divisor), str(entry.feature_factor), entry.description)
        groups.setdefault(f"{entry.arrow} {entry.kind}s", []).append(row)
    return Listing(
        columns=("spec", "map", "divisor", "factor", "computes"),
        groups=groups,
        entries=[
            {
                "spec": entry.spec,
                "map": list(entry.map),
                "divisor": entry.divisor,
                "feature_factor": float(entry.feature_factor),
                "kind": entry.kind,
                "description": entry.description,
            }
            for entry in entries
        ],
        notes=(
            "map: channels in → out; a width must be a multiple of the divisor; factor: channels out per channel in.",
            "Endings: _kN for groups of N channels (or_ail_k3), _halves for channel i with i + C/k as in GLU (xnor_il_halves).",
            "Duplicates (_d) give every gate every group, partitions (_p; _pu if uneven) give each its share.",
            "Any other ensemble: gates joined by _ (and_xor_il_d), members of any kind by + (max+xnor_ail_d).",
        ),
    )


def studies() -> Listing:
    """Every study that ships with boolit."""
    from boolit.lab.studies import list_studies

    found = list_studies()
    return Listing(
        columns=("study", "profiles", "is about"),
        groups={"studies": [(study.name, ", ".join(study.profiles), study.title) for study in found]},
        entries=[{"name": study.name, "profiles": study.profiles, "title": study.title} for study in found],
        notes=("boolit run STUDY trains one, boolit show STUDY says what it would train; a .toml file of your own works too.",),
    )


def figures() -> Listing:
    """Every figure that needs no training."""
    from boolit.lab.reports.figures import FIGURES

    return Listing(
        columns=("figure", "in the paper", "shows"),
        groups={"figures": [(name, entry.label or "–", entry.caption) for name, entry in FIGURES.items()]},
        entries=[{"name": name, "label": entry.label, "caption": entry.caption} for name, entry in FIGURES.items()],
        notes=("boolit figures NAME draws one.",),
    )


LISTINGS: dict[str, Callable[[], Listing]] = {"activations": activations, "studies": studies, "figures": figures}


def list_(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"What to list: {', '.join(LISTINGS)}.")] = "activations",
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list for programs.")] = False,
) -> None:
    """Show what there is to choose from.

    Activations come with their maps (channels in → out) and what they compute.
    """
    if kind not in LISTINGS:
        raise UserError(f"there is no list of {kind!r}; choose from {', '.join(LISTINGS)}")
    listing = LISTINGS[kind]()
    if json:
        print_json(listing.entries)
    else:
        _print(listing)


def _print(listing: Listing) -> None:
    console = output()
    widths = [max(map(len, column)) for column in zip(listing.columns, *chain(*listing.groups.values()), strict=True)]
    for heading, rows in listing.groups.items():
        table = plain_table(*listing.columns)
        table.show_header = heading == next(iter(listing.groups))
        for column, width in zip(table.columns, widths, strict=True):
            column.min_width = width
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(f"[bold]{escape(heading)}[/]")
        console.print(table)
        console.print()
    for note in listing.notes:
        console.print(note, markup=False, style="dim")
