"""Run the registered experiment of docs/settle.md. benchmarks/settle_page.py makes the page from the CSVs of its runs.

    python benchmarks/settle.py tune letter magic …      learning rates, on validation rows
    python benchmarks/settle.py solve letter magic …     widths whose steps take as long as step_time wants
    python benchmarks/settle.py run letter magic …       train all budgets and write docs/evidence/settle/runs
    python benchmarks/settle.py measure letter magic …   time the steps of all networks again

Results folders of boolit go to ``--results``; a run that is in one is not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from boolit.lab.datasets import describe, for_choosing
from boolit.lab.execute import execute, train_configs
from boolit.lab.results.store import Store
from boolit.lab.studies import Plan, load_study, plan, save
from boolit.lab.studies.budgets import StepTimer, sizes
from boolit.lab.studies.search import hparams_to_toml

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence" / "settle"
BUDGETS = ("params", "outputs", "step-time")
WIDE = {"splice": 12_000}  # parameters of tables for which those of the study give widths too coarse for 3 %
TABLES = ("letter", "magic", "optdigits", "penbased", "phoneme", "ring", "satimage", "spambase", "splice", "texture")
OTHERS = ("covertype", "mnist", "fashion", "chorales", "cifar10-heads")
COLUMNS = ["activation", "seed", "state", "learning_rate", "best_epoch", "valid_accuracy", "test_accuracy", "seconds"]
TARGET = 1.5  # step_time of the studies
RATES, RATE_SEEDS = (0.01, 0.03, 0.1), range(3_000_000, 3_000_002)  # studies count their seeds from 0


def plan_of(dataset: str, budget: str, tuned: bool = True) -> Plan:
    """Return the plan of one dataset under one budget, with the stored learning rates and widths if ``tuned``."""
    study, sets = (f"settle-{dataset}", []) if dataset in OTHERS else ("settle-tables", [f"data.table={dataset}"])
    if dataset in WIDE and budget != "outputs":
        sets.append(f"sweep.params={WIDE[dataset]}")
    name = dataset if budget != "step-time" else f"{dataset}-step-time"
    return plan(load_study(study), budget, sets=sets, hparams=EVIDENCE / "hparams" / f"{name}.toml" if tuned else None)


def tune(dataset: str, results: Path) -> None:
    """Choose the learning rate of every arm on validation rows."""
    planned = plan_of(dataset, "params", tuned=False)
    runs = {run.activation: run for run in planned.runs}
    metric = planned.study.metric.model_copy(update={"split": "valid"})
    trials = [
        trial.replace(training={"learning_rate": rate})
        for run in runs.values()
        for rate in RATES
        for trial in run.replace(data=for_choosing(run.data), metric=metric, trial=True).with_seeds(RATE_SEEDS)
    ]
    with Store(results / f"{dataset}-rates") as store, store.writing():
        tried = train_configs(trials, planned, store, progress=False)
    assert tried is not None, "interrupted"
    configs, values = [each.config for each in tried], [each.metrics["valid_accuracy"] for each in tried]
    rows = [(dataset, each.activation, each.training.learning_rate, each.seed) for each in configs]
    frame = pd.DataFrame(rows, columns=["dataset", "activation", "learning_rate", "seed"]).assign(valid_accuracy=values)
    _write(frame.round(6), "rates", dataset)
    # A run that diverged counts as no hits; equal rates are won by the lower one.
    means = frame.fillna({"valid_accuracy": 0.0}).groupby(["activation", "learning_rate"])["valid_accuracy"].mean()
    chosen = {spec: {"learning_rate": float(means[spec].idxmax())} for spec in runs}
    _write_hparams(dataset, chosen, "learning rates chosen on validation rows")


def solve(dataset: str, _results: Path) -> None:
    """Find the widths of ``step_time`` by measurement."""
    timer, chosen = _timer(dataset), {}
    for run in {run.activation: run for run in plan_of(dataset, "params").runs}.values():
        width = timer.solve(run.activation, TARGET)[0]
        chosen[run.activation] = {"learning_rate": run.training.learning_rate, "width": width}
    _write_hparams(f"{dataset}-step-time", chosen, f"the same rates, and widths whose step takes {TARGET} times ReLU's")


def _timer(dataset: str) -> StepTimer:
    run = plan_of(dataset, "params", tuned=False).runs[0]
    return StepTimer(run.model, describe(run.data), run.training, run.size, run.depth)


def _write_hparams(name: str, settings: dict[str, dict[str, float]], heading: str) -> None:
    path = EVIDENCE / "hparams" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(hparams_to_toml(settings, heading), encoding="utf-8")


def _write(frame: pd.DataFrame, folder: str, name: str) -> None:
    (EVIDENCE / folder).mkdir(parents=True, exist_ok=True)
    frame.to_csv(EVIDENCE / folder / f"{name}.csv", index=False)


def run(dataset: str, results: Path) -> None:
    """Train all budgets of a dataset and write its runs."""
    parts = []
    for budget in BUDGETS:
        planned, folder = plan_of(dataset, budget), results / f"{dataset}-{budget}"
        with Store(folder) as store, store.writing():
            save(planned, folder)
            execute(planned, store, progress=False)
            frame = store.frame([each.key for each in planned.runs])
        parts.append(frame[COLUMNS].assign(dataset=dataset, budget=budget).sort_values(["activation", "seed"]))
        _write(pd.concat(parts).round({"valid_accuracy": 6, "test_accuracy": 6, "seconds": 4}), "runs", dataset)


def measure(dataset: str, _results: Path) -> None:
    """Write the sizes of all networks of a dataset, with fresh measurements of their steps."""
    timer, parts = _timer(dataset), []
    for budget in BUDGETS:
        first = {each.activation: each for each in plan_of(dataset, budget).runs}
        parts.append(pd.DataFrame(sizes(list(first.values()), timer=timer)).assign(dataset=dataset, budget=budget))
    _write(pd.concat(parts), "sizes", dataset)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["tune", "solve", "run", "measure"])
    parser.add_argument("datasets", nargs="*", default=[*TABLES, *OTHERS], metavar="DATASET")
    parser.add_argument("--results", type=Path, default=Path("results/settle"))
    options = parser.parse_args()
    for dataset in options.datasets:
        {"tune": tune, "solve": solve, "run": run, "measure": measure}[options.command](dataset, options.results)
        print(f"{options.command} {dataset}: done", flush=True)


if __name__ == "__main__":
    main()
