"""``boolit list`` and ``boolit doctor``: what there is to choose from, and what is active on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._options import Kind, values
from boolit.cli._terminal import OUTPUT, JsonOption, output, plain_table, print_json
from boolit.lab.catalogue import list_activations, list_studies

if TYPE_CHECKING:
    from boolit.lab.doctor import Fact, Section

NOTES = {
    "activations": (
        "channels: in → out of a group; factor: channels out per channel in; a width is a multiple of the width multiple.",
        "Endings: _kN for groups of N channels (or_ail_k3), _halves for channel i with i + C/k as in GLU (xnor_il_halves).",
        "Duplicates (_d) give every gate every group, partitions (_p; _pu if uneven) give each its share.",
        "Any other ensemble: gates joined by _ (and_xor_il_d), members of any kind by + (max+xnor_ail_d).",
    ),
    "studies": ("boolit run STUDY trains one; your own .toml file works too.",),
    "figures": ("boolit figures NAME draws one.",),
}


def list_(
    kind: Annotated[Kind, typer.Argument(metavar=values(Kind), help="What to list.")] = Kind.ACTIVATIONS,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list for programs.", rich_help_panel=OUTPUT)] = False,
) -> None:
    """Show what there is to choose from.

    Activations come with their maps (channels in → out) and what they compute.

    Examples:
      boolit list
      boolit list studies
      boolit list figures --json
    """
    entries, columns, groups = LISTINGS[kind.value]()
    if json:
        print_json(entries)
    else:
        _print_groups(columns, groups, NOTES[kind.value])


Listing = tuple[list[dict[str, Any]], tuple[str, ...], dict[str, list[tuple[str, ...]]]]  # entries, columns, groups of rows


def _activations() -> Listing:
    groups: dict[str, list[tuple[str, ...]]] = {}
    entries = []
    for facts in list_activations():
        arrow, factor = f"{facts.channels[0]}→{facts.channels[1]}", Fraction(facts.channels[1], facts.channels[0])
        row = (facts.spec, arrow, str(facts.width_multiple), str(factor), facts.description)
        groups.setdefault(f"{arrow} {facts.kind}s", []).append(row)
        entries.append({**vars(facts), "feature_factor": float(factor)})
    return entries, ("spec", "channels", "width multiple", "factor", "computes"), groups


def _studies() -> Listing:
    entries = list_studies()
    rows: list[tuple[str, ...]] = [(entry["name"], ", ".join(entry["profiles"]), entry["title"]) for entry in entries]
    return entries, ("study", "profiles", "title"), {"studies": rows}


def _figures() -> Listing:
    from boolit.lab.paper.figures import FIGURES

    entries = [{"name": name, "label": entry.label, "caption": entry.caption} for name, entry in FIGURES.items()]
    rows: list[tuple[str, ...]] = [(name, entry.label or "–", entry.caption) for name, entry in FIGURES.items()]
    return entries, ("figure", "in the paper", "shows"), {"figures": rows}


LISTINGS = {"activations": _activations, "studies": _studies, "figures": _figures}


def _print_groups(columns: Sequence[str], groups: Mapping[str, Sequence[Sequence[str]]], notes: Sequence[str]) -> None:
    console = output()
    widths = [max(map(len, column)) for column in zip(columns, *chain(*groups.values()), strict=True)]
    for heading, rows in groups.items():
        table = plain_table(*columns)
        table.show_header = heading == next(iter(groups))
        for column, width in zip(table.columns[:-1], widths[:-1], strict=True):  # the last one may wrap
            column.min_width = width
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(f"[bold]{escape(heading)}[/]")
        console.print(table)
        console.print()
    for note in notes:
        console.print(note, markup=False, style="dim")


def doctor(json: JsonOption = False) -> None:
    """Show what is active on this machine, and why not.

    Versions, compiled kernels and their threads, devices, optional packages, the folder for data. What is amiss is a
    warning with its fix; the exit code is 0 all the same.

    Examples:
      boolit doctor
      boolit doctor --json
    """
    from boolit.lab.doctor import examine

    sections = examine()
    if json:
        facts = {section.name: section.facts for section in sections}
        print_json({**facts, "warnings": [line for section in sections for line in section.warnings]})
    else:
        _print_sections(sections)


def _print_sections(sections: list[Section]) -> None:
    console = output()
    for section in sections:
        table = plain_table("name", "value")
        table.show_header = False
        table.columns[0].min_width = 2 + max(len(name) for each in sections for name in each.facts)
        table.columns[1].overflow = "fold"  # a path is to be seen to its end
        for name, fact in section.facts.items():
            label = name if name.isupper() else name.replace("_", " ")  # an environment variable keeps its name
            table.add_row(f"  {label}", escape(_in_words(fact)))
        console.print(f"[bold]{section.name}[/bold]")
        console.print(table)
    warnings = [line for section in sections for line in section.warnings]
    console.print()
    for line in warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(line)}", soft_wrap=True)
    if not warnings:
        console.print("[green]all is well[/green]")


def _in_words(fact: Fact) -> str:
    if fact is None:
        return "–"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, str | int):
        return str(fact)
    present = [f"{package} {version}" for package, version in fact.items() if version is not None]
    absent = [package for package, version in fact.items() if version is None]
    fix = [f"not installed: pip install {' '.join(absent)}"] if absent else []
    return "; ".join([*([", ".join(present)] if present else []), *fix])
