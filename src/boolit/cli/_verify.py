"""``boolit verify``: the paper's numbers against ours."""

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
from boolit.lab.paper.verification import FAMILIES, Check, CheckFamily, Value, choose
from boolit.lab.paper.verification import verify as compute

NAMES = [family.name for family in FAMILIES]
Results: TypeAlias = list[tuple[CheckFamily, list[Check]]]


def verify(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME,...",
            help=f"Only some families of checks, with commas between: {', '.join(NAMES)}.",
            autocompletion=complete_names(NAMES),
        ),
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print one line instead of every check.", rich_help_panel=OUTPUT)
    ] = False,
    json: JsonOption = False,
) -> None:
    """Compare the paper's numbers with ours.

    Exits with 1 if one does not agree. Where the paper slips, ours is compared with the right value, and a note says so.

    Examples:
      boolit verify
      boolit verify --summary
      boolit verify --only maps,transfer --json
    """
    wanted = [name for names in only or () for name in names.split(",")]
    check_names(wanted, NAMES, "--only")
    families = choose(wanted)
    results: Results = []
    with count_progress(False if json else None) as begin:
        advance = begin("checking the paper's numbers: families", len(families))
        for family, checks in compute(families):
            results.append((family, checks))
            advance(1)
    if json:
        _print_json(results)
    elif summary:
        _print_summary(results)
    else:
        _print(results)
    if not all(check.ok for _, checks in results for check in checks):
        raise typer.Exit(1)


def _print_json(results: Results) -> None:
    checks = [
        {
            "family": family.name,
            "source": family.source,
            "name": check.name,
            "paper": check.paper,
            "expected": check.target,
            "ours": _finite(check.ours),
            "tolerance": check.tolerance,
            "ok": check.ok,
            "slip": check.slip,
            "note": check.note,
        }
        for family, checks in results
        for check in checks
    ]
    print_json({"ok": all(check["ok"] for check in checks), "checks": checks})


def _finite(value: Value) -> Value:
    """JSON has no NaN and no infinity: their names, then."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _print(results: Results) -> None:
    console = output()
    for family, checks in results:
        console.print(f"[bold]{family.title}[/] [dim]{family.name} · {family.source}[/]")
        _print_checks(console, checks)
        console.print()
    every = [check for _, checks in results for check in checks]
    wrong, slips = sum(not check.ok for check in every), sum(check.slip for check in every)
    verdict = f"[red]{wrong} of {len(every)} checks fail[/]" if wrong else f"[green]all {len(every)} checks agree[/]"
    console.print(f"{verdict}; {slips} of them correct a slip of the paper, see the notes" if slips else verdict)


def _print_summary(results: Results) -> None:
    every = [check for _, checks in results for check in checks]
    wrong, slips = sum(not check.ok for check in every), sum(check.slip and check.ok for check in every)
    corrected = f", {slips} of them after correcting a slip of it" if slips else ""
    told = f"{len(every) - wrong} checks agree with the paper{corrected}"
    failing = f"[red]{wrong} of {len(every)} do not[/]; " if wrong else ""
    output().print(f"{told}; {failing}details: boolit verify", soft_wrap=True)


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
    """The number of the row's note, which is added to the notes unless it is among them; a failure shows all digits."""
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
