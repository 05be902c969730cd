"""``boolit bench training``: what stacking runs gains over training them one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from boolit.cli._terminal import output, plain_table, print_json, progress

if TYPE_CHECKING:
    from boolit.lab.training.bench import AugmentationCost, StackingGain

BARS = {"parity study": 20, "54-32-32-7 with batch norm": 4}
AUGMENTATION = "affine"


def training(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Epochs of each, measured in turn.")] = 7,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
) -> None:
    """Measure how much faster stacked training is than a plain loop of the same trainer.

    Epochs of a cohort and of its single runs are timed in turn; what is compared is the median of each. A timing decides
    nothing: the exit code is 0 whatever comes out.
    """
    from boolit.lab.studies import load_study, plan
    from boolit.lab.training.bench import augmentation_cost, batch_norm_job, compare_with_loop, mnist_job, total

    cohorts = plan(load_study("parity")).cohorts
    console = progress()
    gains: dict[str, StackingGain] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=len(cohorts) + 3)
        for cohort in cohorts:
            gains[f"parity, {cohort.runs[0].config['activation']}"] = compare_with_loop(cohort.job(), rounds)
            bar.advance(task)
        gains["parity study"] = total(gains)
        gains["54-32-32-7 with batch norm"] = compare_with_loop(batch_norm_job(), rounds)
        bar.advance(task)
        gains["mnist-mlp, 65k parameters, relu"] = compare_with_loop(mnist_job(), rounds)
        bar.advance(task)
        cost = augmentation_cost(AUGMENTATION)
        bar.advance(task)
    if json:
        entries = {name: {"runs": g.runs, "stacked": g.stacked, "loop": g.loop, "ratio": g.ratio} for name, g in gains.items()}
        augmentation = {"name": AUGMENTATION, "seconds": cost.augmentation, "step": cost.step, "ratio": cost.ratio}
        print_json({"stacking": entries, "augmentation": augmentation})
    else:
        _print(gains)
        _print_cost(cost)


def _print(gains: dict[str, StackingGain]) -> None:
    headings = ("runs", "stacked ms/epoch", "loop ms/epoch", "faster", "bar")
    table = plain_table("what", *headings, right=headings)
    for name, gain in gains.items():
        bar = f"≥ {BARS[name]} × {'✓' if gain.ratio >= BARS[name] else '✗'}" if name in BARS else ""
        figures = (str(gain.runs), f"{1e3 * gain.stacked:.1f}", f"{1e3 * gain.loop:.0f}", f"{gain.ratio:.1f} ×")
        table.add_row(escape(name), *figures, bar)
    output().print(table)


def _print_cost(cost: AugmentationCost) -> None:
    verdict = "✓" if cost.ratio <= 1 else "✗"
    output().print(
        f"\nAugmentation {AUGMENTATION} of {cost.runs} × 256 pictures of MNIST: {1e3 * cost.augmentation:.1f} ms, "
        f"the step it feeds (65k parameters): {1e3 * cost.step:.1f} ms; ratio {cost.ratio:.2f} (≤ 1 {verdict})",
        soft_wrap=True,
    )
