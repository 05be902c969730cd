"""``boolit bench training``: what stacking runs gains over training them one after the other, and what large networks cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import Progress

from boolit.cli._terminal import output, plain_table, print_json, progress

if TYPE_CHECKING:
    from boolit.lab.training.bench import AugmentationCost, StackingGain
    from boolit.lab.training.bench_large import HeadsCost, StepCost

BARS = {"parity study": 20, "54-32-32-7 with batch norm": 4}
AUGMENTATION = "affine"
RESNETS, RESNET_PARAMETERS, RESNET_BATCH = ("relu", "or_ail", "or_and_ail_d"), 23_500_000, 32
HEADS_BATCH = 128


def training(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Epochs of each, measured in turn.")] = 7,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
) -> None:
    """Measure how much faster stacked training is than a plain loop of the same trainer, and a step of large networks.

    Epochs of a cohort and of its single runs are timed in turn; what is compared is the median of each. Then steps of the
    paper's ResNet-50 with several activations, and of all heads of the transfer study against one, its encoder included. A
    timing decides nothing: the exit code is 0 whatever comes out.
    """
    from boolit.lab.studies import load_study, plan
    from boolit.lab.training.bench import augmentation_cost, batch_norm_job, compare_with_loop, mnist_job, total
    from boolit.lab.training.bench_large import heads_cost, resnet_steps

    transfer = load_study("transfer-cifar10").resolved("paper").study.sweep
    cohorts = plan(load_study("parity")).cohorts
    console = progress()
    gains: dict[str, StackingGain] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=len(cohorts) + 5)
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
        steps = resnet_steps(RESNETS, RESNET_PARAMETERS, RESNET_BATCH, rounds)
        bar.advance(task)
        heads = heads_cost(transfer.activation, len(transfer.seed_list), HEADS_BATCH, rounds)
        bar.advance(task)
    if json:
        entries = {name: {"runs": g.runs, "stacked": g.stacked, "loop": g.loop, "ratio": g.ratio} for name, g in gains.items()}
        augmentation = {"name": AUGMENTATION, "seconds": cost.augmentation, "step": cost.step, "ratio": cost.ratio}
        resnet = {spec: asdict(step) for spec, step in steps.items()}
        print_json(
            {
                "stacking": entries,
                "augmentation": augmentation,
                "resnet50": resnet,
                "heads": asdict(heads) | {"ratio": heads.ratio},
            }
        )
    else:
        _print(gains)
        _print_cost(cost)
        _print_steps(steps)
        _print_heads(heads)


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


def _print_steps(steps: dict[str, StepCost]) -> None:
    headings = ("parameters", "s/step", "× relu", "peak MB", "× relu ")
    table = plain_table("ResNet-50, batch 32", *headings, right=headings)
    base = steps["relu"]
    for spec, step in steps.items():
        figures = (f"{step.parameters:,}", f"{step.seconds:.2f}", f"{step.seconds / base.seconds:.2f}")
        table.add_row(spec, *figures, f"{step.peak / 1e6:.0f}", f"{step.peak / base.peak:.2f}")
    output().print()
    output().print(table)


def _print_heads(heads: HeadsCost) -> None:
    verdict = "✓" if heads.ratio <= 3 else "✗"
    output().print(
        f"\nTransfer, batch {HEADS_BATCH}: encoder {heads.encoder:.2f} s, one head's step {1e3 * heads.one:.1f} ms, "
        f"a step of all {heads.heads} heads {heads.all:.2f} s; all cost {heads.ratio:.2f} times as much as one (≤ 3 {verdict})",
        soft_wrap=True,
    )
