"""``boolit correlations``: do networks make the features a gate reads together depend on each other?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit.cli._terminal import output, plain_table, print_json

if TYPE_CHECKING:
    from boolit.lab.results.correlations import Correlations


def correlations(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that boolit run wrote, with weights kept.")],
    layer: Annotated[int, typer.Option("--layer", min=1, help="Which hidden layer's weights, counted from 1.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
) -> None:
    """Compare the weight rows that a gate reads together with all other pairs of rows.

    For every study and activation, at its largest size and over all seeds: the cosine similarity of rows, as a table and as a
    histogram in DIR/report.
    """
    from boolit.lab.reports.figures import row_correlations, save
    from boolit.lab.results.correlations import correlations as measured
    from boolit.lab.results.store import Store

    with Store(folder, create=False) as store:
        found = measured(store, layer)
    picture = folder / "report" / f"correlations-{layer}.png"
    picture.parent.mkdir(exist_ok=True)
    save(row_correlations(found), picture, f"Cosine similarities of the weight rows of layer {layer}.")
    if json:
        print_json({"layer": layer, "activations": [_entry(each) for each in found], "figure": str(picture)})
    else:
        _print(found)
        output().print(f"Figure: {escape(str(picture))}", soft_wrap=True)


def _entry(each: Correlations) -> dict[str, Any]:
    named = {"study": each.study, "activation": each.activation, "width": each.width, "runs": each.runs}
    return named | {name: value if math.isfinite(value) else None for name, value in each.figures().items()}


def _print(found: list[Correlations]) -> None:
    headings = ("width", "runs", "paired", "of them negative", "others")
    table = plain_table("study", "activation", *headings, right=headings)
    for each in found:
        figures = each.figures()
        table.add_row(
            escape(each.study),
            escape(each.activation),
            str(each.width),
            str(each.runs),
            f"{figures['paired_mean']:+.3f} ± {figures['paired_sd']:.3f}",
            f"{100 * figures['paired_negative']:.0f} %",
            f"{figures['others_mean']:+.3f} ± {figures['others_sd']:.3f}",
        )
    output().print(table)
    output().print("Cosine similarity of weight rows, mean ± sd: rows that one gate reads, and all other pairs of rows.")
