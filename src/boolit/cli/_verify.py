"""``boolit verify``: check the paper's numbers and claims."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from boolit.cli._options import check_names, complete_names
from boolit.cli._terminal import OUTPUT, JsonOption, output, plain_table, print_json
from boolit.lab.common.progress import count_progress
from boolit.lab.paper.verification import FAMILIES, KINDS, Check, CheckFamily, Value, choose, count_kinds
from boolit.lab.paper.verification import verify as compute

NAMES = [family.name for family in FAMILIES]
Results: TypeAlias = list[tuple[CheckFamily, list[Check]]]


def verify(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME,...",
            help=f"Families of checks, separated by commas: {', '.join(NAMES)}.",
            autocompletion=complete_names(NAMES),
        ),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print the numbers of checks instead of every check.", rich_help_panel=OUTPUT)
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check the paper's numbers and claims without training anything.

    Exits with 1 if a check fails. Where the paper has an error, our value is compared with the right one, and a note says so.

    Examples:
      boolit verify
      boolit verify --summary
      boolit verify --only maps,claims --json
    """
    wanted = [name for names in only or () for name in names.split(",")]
    check_names(wanted, NAMES, "--only")
    families = choose(wanted)
    results: Results = []
    with count_progress(False if json else None) as begin:
        advance = begin("checking the paper: families", len(families))
        for family, checks in compute(families):
            results.append((family, checks))
            advance(1)
    every = [check for _, checks in results for check in checks]
    if json:
        _print_json(results)
    else:
        if not summary:
            _print_families(results)
        _print_counts(every)
    if not all(check.ok for check in every):
        raise typer.Exit(1)


def _print_json(results: Results) -> None:
    checks = [
        {
            "family": family.name,
            "source": family.source,
            "name": check.name,
            "kind": check.kind,
            "paper": check.paper,
            "expected": check.target,
            "ours": _finite(check.ours),
            "tolerance": check.tolerance,
            "ok": check.ok,
            "note": check.note,
        }
        for family, checks in results
        for check in checks
    ]
    counts = {kind: sum(check["kind"] == kind for check in checks) for kind in KINDS}
    print_json({"ok": all(check["ok"] for check in checks), "counts": counts, "checks": checks})


def _finite(value: Value) -> Value:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no NaN


def _print_counts(checks: list[Check]) -> None:
    failing = sum(not check.ok for check in checks)
    verdict = f"[red]{failing} of {len(checks)} checks fail[/]" if failing else f"[green]all {len(checks)} checks agree[/]"
    output().print(f"{verdict}: {count_kinds(checks)}", soft_wrap=True)


def _print_families(results: Results) -> None:
    console = output()
    for family, checks in results:
        console.print(f"[bold]{family.title}[/] [dim]{family.name} · {family.source}[/]")
        console.print(f"[dim]{count_kinds(checks)}[/]")
        _print_checks(console, checks)
        console.print()


def _print_checks(console: Console, checks: list[Check]) -> None:
    passed, failed = ("[green]ok[/]", "[red]FAIL[/]") if console.options.ascii_only else ("[green]✓[/]", "[red]✗[/]")
    notes: list[str] = []
    rows = [
        (
            passed if check.ok else failed,
            escape(check.name),
            escape(_text(check.paper)),
            escape(_text(check.ours)),
            f"{check.tolerance:.0e}" if check.tolerance else "",
            _reference(check, notes),
        )
        for check in checks
    ]
    headings = ("", "check", "paper", "ours", "±", "")
    kept = [column for column in range(len(headings)) if any(row[column] for row in rows)]
    table = plain_table(*(headings[column] for column in kept), right=("paper", "ours", "±"))
    for row in rows:
        table.add_row(*(row[column] for column in kept))
    console.print(table)
    grid = Table.grid(padding=(0, 1, 0, 0))
    for number, note in enumerate(notes, start=1):
        grid.add_row(f"  [dim]{escape(f'[{number}]')}[/]", f"[dim]{escape(note)}[/]")
    if notes:
        console.print(grid)


def _reference(check: Check, notes: list[str]) -> str:
    """Return the number of the check's note, adding it to the notes. The note of a failure shows all digits."""
    note = check.note if check.ok else f"expected {check.target!r}, got {check.ours!r}" + (check.note and f"; {check.note}")
    if not note:
        return ""
    if note not in notes:
        notes.append(note)
    return escape(f"[{notes.index(note) + 1}]")


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1e}" if 0 < abs(value) < 1e-6 else f"{value:.6g}"
