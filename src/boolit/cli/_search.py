"""``boolit search``: the paper's random search for hyper-parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from boolit._command import INTERRUPTED, say_going_on
from boolit.cli._run import JsonOption, OutOption, ProfileOption, SetOption, StudyArgument
from boolit.cli._terminal import output, plain_table, print_json

if TYPE_CHECKING:
    from boolit.lab.tuning import Found


def search(
    study: StudyArgument,
    activations: Annotated[
        list[str] | None, typer.Option("--activation", "-a", help="Which activation; all of the study's unless given.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=100, help="Rounds of random settings.")] = 4,
    trials: Annotated[int, typer.Option("--trials", min=5, max=10_000, help="Settings a round.")] = 120,
    seeds: Annotated[int, typer.Option("--seeds", min=2, max=100_000, help="Seeds for each of the ten best settings.")] = 120,
    profile: ProfileOption = None,
    sets: SetOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Search hyper-parameters as the paper does.

    Random settings, the bounds tightened after each round; then the ten best settings of all rounds with many seeds. It chooses
    by the data's validation rows, or a fifth of the training rows where there are none; test rows are not looked at. Stopped
    and started again, it goes on where it was.
    """
    from boolit.lab.results.store import Store
    from boolit.lab.studies import load_study
    from boolit.lab.tuning import Search, write_hparams
    from boolit.lab.tuning import search as find

    file = load_study(study)
    with Store(out or Path("results") / f"{file.name}-search") as store:
        how = Search(store, rounds, trials, seeds, progress=False if json else None)
        found = find(file, how, activations, profile, sets or [])
        if found is None:
            say_going_on()
            raise typer.Exit(INTERRUPTED)
        path = store.folder / "hparams.toml"
        write_hparams(found, file.name, path)
    print_json({"hparams": str(path), "found": [_entry(one) for one in found]}) if json else _print(found, study, path)


def _entry(found: Found) -> dict[str, Any]:
    best = found.finalists[0]
    return {
        "activation": found.activation,
        "setting": dict(best.setting),
        "mean": best.mean,
        "solved": best.solved,
        "diverged": best.diverged,
        "best_of_each_round": list(found.rounds),
        "covers": found.judged,
    }


def _print(found: list[Found], study: str, path: Path) -> None:
    console = output()
    names = list(found[0].setting)
    table = plain_table("activation", "mean", "solved", *names, right=("mean", "solved", *names))
    for one in found:
        best = one.finalists[0]
        values = (f"{value:.3g}" for value in best.setting.values())
        table.add_row(escape(one.activation), f"{best.mean:.4f}", f"{best.solved:.0%}", *values)
    console.print(table)
    for judged in dict.fromkeys(one.judged for one in found):
        console.print(escape(judged))
    console.print(f"\nUse it with: boolit run {escape(study)} --hparams {escape(str(path))}", soft_wrap=True)
