"""``boolit doctor``: what is active, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from boolit.cli._terminal import output, plain_table, print_json

if TYPE_CHECKING:
    from boolit.lab.doctor import Fact, Section


def doctor(json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False) -> None:
    """Show what is active on this machine, and why not.

    Versions, compiled kernels and their threads, devices, optional packages, the folder for data. What is amiss is a
    warning with its fix; the exit code is 0 all the same.
    """
    from boolit.lab.doctor import examine

    sections = examine()
    if json:
        facts = {section.name: section.facts for section in sections}
        print_json({**facts, "warnings": [line for section in sections for line in section.warnings]})
    else:
        _print(sections)


def _print(sections: list[Section]) -> None:
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
