"""``boolit figures``, ``paper``, ``correlations``, ``export`` and ``rescue``: what is made of finished runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._terminal import JsonOption, output, plain_table, print_json
from boolit.lab.common.errors import UserError

if TYPE_CHECKING:
    from boolit.lab.reports.figures.correlations import Correlations


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Which; all unless given (see boolit list figures).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("figures"),
    format: Annotated[str, typer.Option("--format", "-f", help="png, svg or pdf.")] = "png",  # noqa: A002
) -> None:
    """Draw the paper's figures that need no training."""
    from boolit.lab.common.progress import count_progress
    from boolit.lab.reports.figures import FIGURES, draw

    with count_progress(lines=False) as begin:
        advance = begin("drawing", len(names or FIGURES))
        paths = draw(names or [], out, format, lambda _: advance(1))
    for path in paths:
        output().print(escape(str(path)))


def paper(
    label: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table's label, such as tab:mlp-mnist.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", "-r", metavar="DIR", help="A folder that boolit run wrote, to set beside it.")
    ] = None,
    format: Annotated[  # noqa: A002
        str | None, typer.Option("--format", "-f", help="markdown, latex, html or csv instead of a terminal table.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a table of the paper, or which there are; with --results, your own numbers beside the paper's."""
    from boolit.lab.paper import tables
    from boolit.lab.paper.comparison import paper_table
    from boolit.lab.reports.tables import render, terminal_table
    from boolit.lab.results.store import Store

    if label is None:
        print_json({"tables": tables()}) if json else print("\n".join(tables()))
        return
    label = label if label.startswith("tab:") else f"tab:{label}"
    if results is None:
        table = paper_table(label)
    else:
        with Store(results, create=False) as store:
            records = store.records()
        if not records:
            raise UserError(f"{results} has no finished runs to set beside {label}; run the table's study into it first")
        table = paper_table(label, records)
    if json:
        print_json({"table": render(table, "csv"), "notes": list(table.notes)})
    elif format is not None:
        print(render(table, format), end="")
    else:
        output().print(terminal_table(table, output().width))


def correlations(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that boolit run wrote, with weights kept.")],
    layer: Annotated[int, typer.Option("--layer", min=1, help="Which hidden layer's weights, counted from 1.")] = 1,
    json: JsonOption = False,
) -> None:
    """Compare the weight rows that a gate reads together with all other pairs of rows.

    For every study and activation, at its largest size and over all seeds: the cosine similarity of rows, as a table and as a
    histogram in DIR/report.
    """
    from boolit.lab.reports.figures.correlations import measure_correlations, write_correlations
    from boolit.lab.results.store import Store

    with Store(folder, create=False) as store:
        found = measure_correlations(store, layer)
    figure = write_correlations(found, folder, layer)
    if json:
        print_json({"layer": layer, "activations": [_entry(each) for each in found], "figure": str(figure)})
    else:
        _print(found)
        output().print(f"Figure: {escape(str(figure))}", soft_wrap=True)


def _entry(each: Correlations) -> dict[str, Any]:
    named = {"study": each.study, "activation": each.activation, "width": each.width, "runs": each.runs}
    return named | {name: value if math.isfinite(value) else None for name, value in each.metrics().items()}


def _print(found: list[Correlations]) -> None:
    headings = ("width", "runs", "paired", "of them negative", "others")
    table = plain_table("study", "activation", *headings, right=headings)
    for each in found:
        metrics = each.metrics()
        table.add_row(
            escape(each.study),
            escape(each.activation),
            str(each.width),
            str(each.runs),
            f"{metrics['paired_mean']:+.3f} ± {metrics['paired_sd']:.3f}",
            f"{100 * metrics['paired_negative']:.0f} %",
            f"{metrics['others_mean']:+.3f} ± {metrics['others_sd']:.3f}",
        )
    output().print(table)
    output().print("Cosine similarity of weight rows, mean ± sd: rows that one gate reads, and all other pairs of rows.")


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that boolit run wrote.")],
    format: Annotated[str, typer.Option("--format", "-f", help="csv, parquet or json.")] = "csv",  # noqa: A002
    to: Annotated[Path | None, typer.Option("--to", help="The file to write; DIR/runs.FORMAT unless given.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Also write every metric by epoch.")] = False,
) -> None:
    """Write a folder's runs as a table: one row a run."""
    from boolit.lab.results.export import export as write
    from boolit.lab.results.store import Store

    with Store(folder, create=False) as store:
        for path in write(store, to or folder / f"runs.{format}", format, history):
            output().print(escape(str(path)))


def rescue(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder whose store is damaged.")],
    to: Annotated[Path | None, typer.Option("--to", help="The new folder; DIR-rescued unless given.")] = None,
    json: JsonOption = False,
) -> None:
    """Copy every intact run of a damaged store to a new folder.

    The damaged store is only read. Go on with the new folder: `boolit run` trains again what was lost.
    """
    from boolit.lab.results.rescue import rescue as copy

    found = copy(folder, to or folder.resolve().with_name(f"{folder.resolve().name}-rescued"))
    if json:
        entry = {"kept": found.kept, "lost": list(found.lost), "checked": found.checked, "folder": str(found.folder)}
        print_json(entry)
        return
    console = output()
    lost = f"{len(found.lost)} lost: {', '.join(found.lost)}" if found.lost else "none known to be lost"
    console.print(f"{found.kept} runs copied to {escape(str(found.folder))}; {lost}.", soft_wrap=True)
    if not found.checked:
        console.print("The store is of version 1, which has no checksums: what could be read was taken.", soft_wrap=True)
