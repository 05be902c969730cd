"""``boolit bench``: the speed of activations next to torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from boolit.cli._options import WHAT, FloatType, activations_option, complete_names, split_names, values
from boolit.cli._terminal import JsonOption, output, plain_table, print_json
from boolit.lab.common.progress import show_working

if TYPE_CHECKING:
    from boolit.lab.bench import Speeds

HOW = "How to measure"


def bench(
    activations: Annotated[str | None, activations_option(show_default="the paper's gates")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES",
            help="Sizes of a tensor with channels along dimension 1; may be repeated.",
            show_default="1024x1024 and 64x64x32x32",
            rich_help_panel=WHAT,
        ),
    ] = None,
    dtype: Annotated[
        FloatType, typer.Option(metavar="TYPE", help=f"{values(FloatType).replace('|', ', ')}.", rich_help_panel=WHAT)
    ] = FloatType.FLOAT32,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Where to measure: cpu, cuda or cuda:1; boolit doctor shows the devices here.",
            autocompletion=complete_names(("cpu", "cuda")),
            rich_help_panel=HOW,
        ),
    ] = "cpu",
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Every candidate is timed once in each round.", rich_help_panel=HOW)
    ] = 25,
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads.", show_default="as many as torch takes", rich_help_panel=HOW),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the speed of activations next to ReLU and SiLU of torch.

    Ratios are those of the fastest of interleaved rounds; quartiles show the noise. The exit code is 0 whatever the figures.

    Examples:
      boolit bench
      boolit bench --activations or_ail,xnor_il --shape 256x512
      boolit bench --dtype bfloat16 --rounds 10 --json
    """
    from boolit.lab.bench import DEFAULT_SHAPES, DEFAULT_SPECS, measure_speeds

    specs = split_names(activations) or DEFAULT_SPECS
    with show_working("measuring"):
        speeds = measure_speeds(specs, shape or DEFAULT_SHAPES, dtype.value, rounds, device, threads)
    if json:
        print_json(speeds.to_json())
    else:
        _print_speeds(speeds)


def _print_speeds(speeds: Speeds) -> None:
    console = output()
    console.print(", ".join(f"{name} {value}" for name, value in speeds.machine.items()), markup=False, style="dim")
    table = plain_table("activation", "shape", "direction", "time over", "ratio", "quartiles", "bar", right=("ratio", "bar"))
    for ratio in speeds.ratios:
        verdict = "" if ratio.bar is None else f"≤ {ratio.bar:g} {'met' if ratio.is_met else 'missed'}"
        spread = f"{ratio.low:.2f}–{ratio.high:.2f}"
        table.add_row(ratio.spec, ratio.shape, ratio.direction, ratio.reference, f"{ratio.ratio:.2f}", spread, verdict)
    console.print(table)
    verdicts = [ratio.is_met for ratio in speeds.ratios if ratio.bar is not None]
    console.print(f"{sum(map(bool, verdicts))} of {len(verdicts)} bars met")
