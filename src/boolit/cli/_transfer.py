"""``boolit transfer``: a folder of the user's own pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from boolit.cli._options import (
    RESULTS,
    TRAINING,
    WHAT,
    ClusterOption,
    DeviceOption,
    WorkersOption,
    activations_option,
    out_option,
    split_names,
)
from boolit.cli._run import local_device, open_cluster, show_report
from boolit.cli._terminal import JsonOption, activation_name, progress
from boolit.lab.compare.config import ImageCompareConfig

if TYPE_CHECKING:
    from boolit.lab.studies import Plan


ENCODER = "What the encoder sees"


def transfer(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with a folder of pictures for each class.")],
    activations: Annotated[str, activations_option("identity is a linear layer only.")] = ", ".join(
        ImageCompareConfig.activations
    ),
    seeds: Annotated[
        int, typer.Option("--seeds", min=2, metavar="N", help="Trainings of each activation.", rich_help_panel=WHAT)
    ] = ImageCompareConfig.seeds,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            min=32,
            max=1024,
            metavar="N",
            help="The side of what the encoder sees, in pixels.",
            rich_help_panel=ENCODER,
        ),
    ] = ImageCompareConfig.size,
    views: Annotated[
        int,
        typer.Option("--views", min=1, metavar="N", help="Augmented views of each training picture.", rich_help_panel=ENCODER),
    ] = ImageCompareConfig.views,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="Weights of a ResNet-18.",
            show_default="those torchvision publishes",
            rich_help_panel=ENCODER,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            metavar="X",
            help="The learning rate of all, above 0.",
            show_default="chosen for each on the validation pictures",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            metavar="N",
            help="Pictures in a step.",
            show_default="by their number, at most 128",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    epochs: Annotated[
        int,
        typer.Option("--epochs", min=2, metavar="N", help="How often every picture is seen.", rich_help_panel=TRAINING),
    ] = ImageCompareConfig.epochs,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    cluster: ClusterOption = None,
    out: Annotated[Path | None, out_option("results/transfer-FOLDER")] = None,
    json: JsonOption = False,
) -> None:
    """Find out which activation is better on your own pictures.

    A ResNet-18 trained on ImageNet encodes every picture once; heads of equal size, one per seed and activation, learn from
    what it sees. A tenth of the pictures is for validation and chooses each activation's learning rate, a fifth is for the
    test. A table, a verdict and figures. The same command goes on where it was stopped.

    Examples:
      boolit transfer flowers/
      boolit transfer flowers/ --activations relu,or_ail --seeds 10
      boolit transfer flowers/ --weights resnet18.pth --views 1
    """
    from boolit.lab.common.devices import use_device
    from boolit.lab.compare.images import ImageCompareJob

    config = ImageCompareConfig(folder, split_names(activations), seeds, size, views, weights, rate, batch, epochs)
    with use_device(local_device(device, cluster)):
        job = ImageCompareJob.prepare(config)
        if not json:
            _tell(job.plan, views)
        path = out or RESULTS / f"transfer-{config.name}"
        with open_cluster(workers, cluster, device) as on:
            result = job.run(path, False if json else None, None if json else _tell_rates, cluster=on)
    found = {} if result.rates is None else {"rates": result.rates, "notes": result.notes}
    show_report(result.report, result.summary, json, found)


def _tell_rates(rates: Mapping[str, float]) -> None:
    console = progress()
    told = ", ".join(f"{activation_name(spec, console)} {rate:g}" for spec, rate in rates.items())
    console.print(f"Learning rates, chosen on the validation pictures: {escape(told)}\n", soft_wrap=True)


def _tell(planned: Plan, views: int) -> None:
    """What was found, before anything is encoded."""
    from boolit.lab.datasets import load

    found = load(planned.study.data)
    samples = {name: len(split) for name, split in found.splits.items()}
    valid = f"{samples['valid']} {'picture is' if samples['valid'] == 1 else 'pictures are'} for validation"
    whole = sum(count for name, count in samples.items() if name != "train")
    counts = {run.config.activation: run.config.parameters for run in planned.runs}
    console = progress()
    console.print(f"Pictures: {samples['train']} to train on, {samples['test']} to test on; {found.outputs} classes")
    console.print(f"{valid}: they choose the learning rates, unless --rate is given", soft_wrap=True)
    console.print(f"To encode, if not done before: {views * samples['train'] + whole} views")
    told = ", ".join(f"{activation_name(spec, console)} {count:,}" for spec, count in counts.items())
    console.print(f"Parameters: {escape(told)}\n", soft_wrap=True)
