"""``boolit bench``: the speed of activations next to torch's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from boolit.cli._options import JsonOption, activations_option, split_names
from boolit.cli._terminal import output, plain_table, print_json
from boolit.lab.common.progress import show_working


def bench(
    activations: Annotated[str | None, activations_option("the paper's gates")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES",
            help="Shape of a tensor with channels along dimension 1. May be repeated.",
            show_default="1024x1024 and 64x64x32x32",
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16", "float16"],
        typer.Option(metavar="TYPE", help="Data type: float32, float64, bfloat16 or float16."),
    ] = "float32",
    device: Annotated[str, typer.Option(metavar="NAME", help="Device: cpu, cuda or cuda:1.")] = "cpu",
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Number of rounds. Each times every activation once.")] = 25,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads of torch.", show_default="torch's own choice")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the speed of activations next to ReLU and SiLU.

    A ratio compares the fastest of interleaved rounds; the quartiles show the
    noise. Where the project has set a limit, the last column tells whether it
    is met. The exit code is always 0.

    Examples:
      boolit bench
      boolit bench --activations or_ail,xnor_il --shape 256x512
      boolit bench --dtype bfloat16 --rounds 10 --json
    """
    from boolit.cli._speeds import DEFAULT_SHAPES, DEFAULT_SPECS, measure_speeds

    with show_working("measuring", False if json else None):
        specs = split_names(activations) or DEFAULT_SPECS
        machine, ratios = measure_speeds(specs, shape or DEFAULT_SHAPES, dtype, rounds, device, threads)
    if json:
        print_json({"machine": machine, "ratios": [asdict(ratio) for ratio in ratios]})
        return
    console = output()
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), markup=False, style="dim")
    table = plain_table("activation", "shape", "direction", "over", "ratio", "quartiles", "limit", right=("ratio", "limit"))
    for ratio in ratios:
        verdict = "" if ratio.bar is None else f"≤ {ratio.bar:g} {'met' if ratio.ratio <= ratio.bar else 'missed'}"
        spread = f"{ratio.low:.2f}–{ratio.high:.2f}"
        table.add_row(ratio.spec, ratio.shape, ratio.direction, ratio.reference, f"{ratio.ratio:.2f}", spread, verdict)
    console.print(table)
    limited = [ratio for ratio in ratios if ratio.bar is not None]
    console.print(f"{sum(ratio.ratio <= (ratio.bar or 0) for ratio in limited)} of {len(limited)} limits met")
