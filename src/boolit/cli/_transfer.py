"""``boolit transfer``: a folder of the user's own pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from boolit.cli._run import JsonOption, conclude
from boolit.cli._terminal import progress

if TYPE_CHECKING:
    from boolit.lab.execute import ExecutionSummary
    from boolit.lab.results.store import Store
    from boolit.lab.studies import Plan

DEFAULT = "identity,relu,prelu,max,or_ail,xnor_nil,xnor_nail,or_and_xnor_nail_d"


def transfer(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with a folder of pictures for each class.")],
    activations: Annotated[
        str, typer.Option("--activations", "-a", help="Their names, with commas between; identity is a linear layer only.")
    ] = DEFAULT,
    seeds: Annotated[int, typer.Option("--seeds", min=2, help="Trainings of each activation.")] = 5,
    size: Annotated[int, typer.Option("--size", min=32, max=1024, help="The side of what the encoder sees, in pixels.")] = 224,
    views: Annotated[int, typer.Option("--views", min=1, help="Augmented views of each training picture.")] = 5,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="A file of ResNet-18 weights instead of the published one.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="The learning rate of all; found on the validation pictures unless given.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Pictures a step; by their number, at most 128, unless given.")
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", min=2, help="How often every picture is seen.")] = 25,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the results; runs/transfer-FOLDER unless given.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Find out which activation is better on your own pictures.

    A ResNet-18 trained on ImageNet encodes every picture once; heads of equal size, one a seed and activation, learn from what
    it sees. A tenth of the pictures is for validation and chooses each activation's learning rate, a fifth is for the test. A
    table, a verdict and figures. The same command goes on where it was stopped.
    """
    from boolit.lab.compare.images import PROFILE, PictureQuestion, final_plan
    from boolit.lab.execute import execute
    from boolit.lab.results.statistics import Method
    from boolit.lab.results.store import Store
    from boolit.lab.studies import plan

    names = tuple(name.strip() for name in activations.split(",") if name.strip())
    asked = PictureQuestion(folder, names, seeds, size, views, weights, rate, batch, epochs)
    planned = plan(asked.study(), PROFILE)
    shown = False if json else None
    if not json:
        _tell(planned, views)
    with Store(out or Path("runs") / f"transfer-{asked.name}") as store:
        before, rates = (None, dict.fromkeys(names, rate)) if rate is not None else _rates(planned, store, shown)
        if before is not None and not before.complete:
            conclude(planned, store, before, Method(), json)
            return
        final = final_plan(planned, rates)
        summary = execute(final, store, shown)
        notes = _notes(final, store)
        conclude(final, store, before.add(summary) if before else summary, Method(), json, {"rates": rates, "notes": notes})


def _rates(planned: Plan, store: Store, shown: bool | None) -> tuple[ExecutionSummary, dict[str, float]]:
    """Tries the learning rates, and says which were chosen."""
    from boolit.lab.compare.images import chosen_rates, trial_plan
    from boolit.lab.execute import execute

    trials = trial_plan(planned)
    summary = execute(trials, store, shown)
    if not summary.complete:
        return summary, {}
    keys = {run.key for run in trials.runs}
    rates = chosen_rates(record for record in store.records(history=False) if record.key in keys)
    if shown is not False:
        told = ", ".join(f"{spec} {rate:g}" for spec, rate in rates.items())
        progress().print(f"Learning rates, chosen on the validation pictures: {escape(told)}\n", soft_wrap=True)
    return summary, rates


def _notes(final: Plan, store: Store) -> list[str]:
    from boolit.lab.compare.images import divergence_note

    keys = {run.key for run in final.runs}
    records = [record for record in store.records(history=False) if record.key in keys]
    note = divergence_note(records, final.study.training.batch)
    return [note] if note else []


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
    console.print(f"Parameters: {escape(', '.join(f'{spec} {count}' for spec, count in counts.items()))}\n", soft_wrap=True)
