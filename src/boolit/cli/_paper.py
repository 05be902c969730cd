"""``boolit verify``, ``paper`` and ``figures``: the paper's numbers, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Hashable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from boolit.cli import _options as options
from boolit.cli._terminal import output, plain_table, print_json
from boolit.errors import UserError
from boolit.lab.common.progress import count_progress, show_working
from boolit.lab.paper.verification import FAMILIES, KINDS, Check, CheckFamily, Value, choose, count_kinds
from boolit.lab.paper.verification import verify as compute

NAMES = [family.name for family in FAMILIES]


def verify(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME,...", help=f"Families of checks: {', '.join(NAMES)}.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print only the numbers of checks.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Check the paper's numbers and claims without training.

    Exits with 1 if a check fails. Where the paper has an error, our value is
    compared with the correct one, and a note explains it.

    Examples:
      boolit verify
      boolit verify --summary
      boolit verify --only maps,claims --json
    """
    families = choose(name for names in only or () for name in names.split(","))
    results: list[tuple[CheckFamily, list[Check]]] = []
    with count_progress(False if json else None) as begin:
        advance = begin("checking the paper: families", len(families))
        for family, checks in compute(families):
            results.append((family, checks))
            advance(1)
    every = [check for _, checks in results for check in checks]
    if json:
        counts = {kind: sum(check.kind == kind for check in every) for kind in KINDS}
        entries = [_check_entry(family, check) for family, checks in results for check in checks]
        print_json({"ok": all(check.ok for check in every), "counts": counts, "checks": entries})
    else:
        for family, checks in [] if summary else results:
            _print_family(output(), family, checks)
        failed = sum(not check.ok for check in every)
        verdict = f"[red]{failed} of {len(every)} checks fail[/]" if failed else f"[green]all {len(every)} checks agree[/]"
        output().print(f"{verdict}: {count_kinds(every)}", soft_wrap=True)
    if not all(check.ok for check in every):
        raise typer.Exit(1)


def _check_entry(family: CheckFamily, check: Check) -> dict[str, Any]:
    ours = str(check.ours) if isinstance(check.ours, float) and not math.isfinite(check.ours) else check.ours  # no NaN in JSON
    values = {"paper": check.paper, "expected": check.target, "ours": ours, "tolerance": check.tolerance}
    named = {"family": family.name, "source": family.source, "name": check.name, "kind": check.kind}
    return {**named, **values, "ok": check.ok, "note": check.note}


def _print_family(console: Console, family: CheckFamily, checks: list[Check]) -> None:
    console.print(f"[bold]{family.title}[/] [dim]{family.name} · {family.source}\n{count_kinds(checks)}[/]")
    passed, failed = ("[green]ok[/]", "[red]FAIL[/]") if console.options.ascii_only else ("[green]✓[/]", "[red]✗[/]")
    notes: dict[str, int] = {}
    table = plain_table("", "check", "paper", "ours", "±", "", right=("paper", "ours", "±"))
    for check in checks:
        digits = "" if check.ok else f"expected {check.target!r}, got {check.ours!r}"
        note = "; ".join(filter(None, [digits, check.note]))
        reference = escape(f"[{notes.setdefault(note, len(notes) + 1)}]") if note else ""
        tolerance = f"{check.tolerance:.0e}" if check.tolerance else ""
        values = (escape(_format(value)) for value in (check.name, check.paper, check.ours))
        table.add_row(passed if check.ok else failed, *values, tolerance, reference)
    console.print(table)
    for note, number in notes.items():
        console.print(Padding(f"[dim]{escape(f'[{number}] {note}')}[/]", (0, 0, 0, 2), expand=False))
    console.print()


def _format(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1e}" if 0 < abs(value) < 1e-6 else f"{value:.6g}"


def paper(
    label: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Label of a table, such as mlp-mnist; without it, all are listed.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option("--results", "-r", metavar="DIR", help="Add the results of a folder that boolit run wrote.")
    ] = None,
    format: Annotated[  # noqa: A002
        Literal["markdown", "latex", "csv"] | None, options.format_option("for the terminal")
    ] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Judge the claims of the paper's text instead.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Show a table of the paper with our results.

    With --results, the runs of a folder are a further column.

    Examples:
      boolit paper
      boolit paper mlp-mnist
      boolit paper datasets
      boolit paper --claims
      boolit paper mlp-covtype --results results/covertype --format latex
    """
    from boolit.lab.paper import tables
    from boolit.lab.paper.comparison import paper_table
    from boolit.lab.paper.printed import frame, has_results
    from boolit.lab.reports.tables import render
    from boolit.lab.results.store import Store

    if claims:
        if label or results or format:
            raise UserError(f"--claims cannot be combined with {label or results or f'--format {format}'}; leave one out")
        _print_claims(json)
        return
    if label is None:
        print_json({"tables": tables()}) if json else print("\n".join(tables()))
        return
    label = label if label.startswith("tab:") else f"tab:{label}"
    if results is None and format is None and not has_results(label):
        rows = frame(label).convert_dtypes().astype(object).fillna("").astype(str).to_dict("records")
        print_json({"label": label, "rows": rows}) if json else output().print(_plain_rows(rows))
        return
    shown = False if json or results is None else None
    with nullcontext() if results is None else Store(results) as store, show_working("reading the runs", shown):
        table = paper_table(label, store)
    if json:
        print_json({"label": label, "title": table.title, "rows": table.records(), "notes": list(table.notes)})
    elif format is not None:
        print(render(table, format), end="")
    else:
        output().print(table)


def _plain_rows(rows: list[dict[Hashable, Any]]) -> Table:
    table = plain_table(*map(str, rows[0]))
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table


def _print_claims(json: bool) -> None:
    from boolit.lab.paper.claims import claim_table

    frame = claim_table()
    if json:
        print_json({"claims": frame.astype(object).where(frame.notna(), None).to_dict("records")})
        return
    table = plain_table("claim", "printed tables", "our runs", "test", "n", "p", right=("p",))
    for claim in frame.to_dict("records"):
        p = "" if math.isnan(claim["p"]) else f"{claim['p']:.1g}"
        quote = escape(f"{claim['quote']} ({claim['place']})")
        table.add_row(quote, *(claim[key] for key in ("printed", "ours", "test", "n")), p)
    output().print(table)


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="boolit list figures shows them.", show_default="all")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", "-r", metavar="DIR", help="Draw correlations of the weights of a study instead."),
    ] = None,
    out: Annotated[Path, options.out_option("results/figures", "Folder to write to.")] = options.RESULTS / "figures",
    format: Annotated[Literal["png", "svg", "pdf"], options.format_option()] = "png",  # noqa: A002
) -> None:
    """Draw the paper's figures.

    Without names, all of them are drawn.

    Examples:
      boolit figures
      boolit figures gate-or gate-xnor --format svg --out figures
      boolit figures --results results/parity-quick
    """
    from boolit.lab.paper.figures import FIGURES, draw
    from boolit.lab.paper.figures.correlations import draw_correlations

    with count_progress() as begin:
        if results is None:
            advance = begin("drawing figures", len(names or FIGURES))
            paths = draw(names or [], out, format, lambda _: advance(1))
        elif names:
            raise UserError(f"--results draws the correlations of weights; leave out {' '.join(names)}")
        else:
            paths = draw_correlations(results, out, format)
    for path in paths:
        output().print(escape(str(path)), soft_wrap=True)
