"""``boolit figures``, ``paper``, ``correlations`` and ``export``: what is made of finished runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._options import (
    RESULTS,
    DrawingFormat,
    FolderArgument,
    RunsFormat,
    TableFormat,
    complete_figures,
    complete_tables,
    out_option,
    values,
)
from boolit.cli._terminal import OUTPUT, JsonOption, activation_name, output, plain_table, print_json
from boolit.lab.common.progress import count_progress, show_working

if TYPE_CHECKING:
    from boolit.lab.paper.figures.correlations import Correlations


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Which; boolit list figures names them.", show_default="all", autocompletion=complete_figures
        ),
    ] = None,
    out: Annotated[Path, out_option("results/figures", "Folder to write to.")] = RESULTS / "figures",
    format: Annotated[  # noqa: A002
        DrawingFormat,
        typer.Option("--format", "-f", metavar=values(DrawingFormat), help="How to write them.", rich_help_panel=OUTPUT),
    ] = DrawingFormat.PNG,
) -> None:
    """Draw the paper's figures that need no training.

    Examples:
      boolit figures
      boolit figures gate-or gate-xnor --format svg --out figures
    """
    from boolit.lab.paper.figures import FIGURES, draw

    with count_progress() as begin:
        advance = begin("drawing figures", len(names or FIGURES))
        paths = draw(names or [], out, format.value, lambda _: advance(1))
    for path in paths:
        output().print(escape(str(path)), soft_wrap=True)


def paper(
    label: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="A table's label, such as mlp-mnist.",
            show_default="a list of them",
            autocompletion=complete_tables,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", "-r", metavar="DIR", help="A folder that boolit run wrote, to set beside it."),
    ] = None,
    format: Annotated[  # noqa: A002
        TableFormat | None,
        typer.Option(
            "--format",
            "-f",
            metavar=values(TableFormat),
            help="How to write it.",
            show_default="for a terminal",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Judge the claims of the paper's text instead.")] = False,
    json: JsonOption = False,
) -> None:
    """Show a table of the paper with our results; with --results, those of a folder as well.

    Examples:
      boolit paper
      boolit paper mlp-mnist
      boolit paper --claims
      boolit paper mlp-covtype --results results/covertype --format latex
    """
    from boolit.lab.paper import tables
    from boolit.lab.paper.comparison import paper_table
    from boolit.lab.reports.tables import render, terminal_table
    from boolit.lab.results.store import Store

    if claims:
        _print_claims(json)
        return
    if label is None:
        print_json({"tables": tables()}) if json else print("\n".join(tables()))
        return
    label = label if label.startswith("tab:") else f"tab:{label}"
    if results is None:
        table = paper_table(label)
    else:
        with Store(results) as store, show_working("reading the runs", False if json else None):
            table = paper_table(label, store)
    if json:
        print_json({"table": render(table, "csv"), "notes": list(table.notes)})
    elif format is not None:
        print(render(table, format.value), end="")
    else:
        output().print(terminal_table(table, output().width))


def _print_claims(json: bool) -> None:
    from boolit.lab.paper.claims import claim_table

    frame = claim_table()
    if json:
        print_json({"claims": frame.astype(object).where(frame.notna(), None).to_dict("records")})
        return
    table = plain_table("claim", "printed tables", "our runs", "test", "n", "p", right=("p",))
    for claim in frame.to_dict("records"):
        p = "" if math.isnan(claim["p"]) else f"{claim['p']:.1g}"
        table.add_row(
            escape(f"{claim['quote']} ({claim['place']})"), *(claim[key] for key in ("printed", "ours", "test", "n")), p
        )
    output().print(table)


def correlations(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that boolit run wrote, with the weights kept (keep_weights).")
    ],
    layer: Annotated[
        int, typer.Option("--layer", min=1, metavar="N", help="Which hidden layer's weights, counted from 1.")
    ] = 1,
    json: JsonOption = False,
) -> None:
    """Compare the weight rows that a gate reads together with all other pairs of rows.

    For every study and activation, at its largest size and over all seeds: the cosine similarity of rows, as a table and as a
    histogram in DIR/report.

    Examples:
      boolit correlations results/parity-quick
      boolit correlations results/parity-quick --layer 2 --json
    """
    from boolit.lab.paper.figures.correlations import measure_correlations, write_correlations
    from boolit.lab.results.store import Store

    with Store(folder) as store, show_working("comparing weights", False if json else None):
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
    console = output()
    table = plain_table("study", "activation", *headings, right=headings)
    for each in found:
        metrics = each.metrics()
        table.add_row(
            escape(each.study),
            escape(activation_name(each.activation, console)),
            str(each.width),
            str(each.runs),
            f"{metrics['paired_mean']:+.3f} ± {metrics['paired_sd']:.3f}",
            f"{100 * metrics['paired_negative']:.0f} %",
            f"{metrics['others_mean']:+.3f} ± {metrics['others_sd']:.3f}",
        )
    console.print(table)
    console.print("Cosine similarity of weight rows, mean ± sd: rows that one gate reads, and all other pairs of rows.")


def export(
    folder: FolderArgument,
    format: Annotated[  # noqa: A002
        RunsFormat,
        typer.Option("--format", "-f", metavar=values(RunsFormat), help="How to write it.", rich_help_panel=OUTPUT),
    ] = RunsFormat.CSV,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="The file to write.", show_default="DIR/runs.FORMAT", rich_help_panel=OUTPUT),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Also write every metric by epoch.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Write a folder's runs as a table: one row per run.

    Examples:
      boolit export results/parity-quick
      boolit export results/parity-quick --format parquet --history
    """
    from boolit.lab.results.export import export as write
    from boolit.lab.results.store import Store

    path = to or folder / f"runs.{format.value}"
    with Store(folder) as store, show_working("exporting the runs"):
        paths = [write(store.frame(), path, format.value)]
        if history:
            paths.append(write(store.curves(), path.with_name(f"{path.stem}-history{path.suffix}"), format.value))
    for path in paths:
        output().print(escape(str(path)), soft_wrap=True)
