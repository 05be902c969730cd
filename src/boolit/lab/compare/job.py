"""The procedure: prepare the table, choose learning rates, train on every split, score, conclude, and save a model.

Everything trained is in the store of the results folder. Killed at any moment, the same call continues from there.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from safetensors.torch import load_file

from boolit.errors import UserError
from boolit.lab.common.progress import show_working
from boolit.lab.compare import MANY_ROWS, SPLITS, SPLITS_OF_MANY_ROWS, CompareConfig, runs, scoring
from boolit.lab.datasets.table import PreparedTable, prepare_table
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.results.names import paper_name
from boolit.lab.results.splits import SplitVerdict
from boolit.lab.results.store import Store
from boolit.lab.runs import RunConfig
from boolit.lab.studies import Plan
from boolit.lab.studies import save as save_study
from boolit.lab.studies.planner import SAVED
from boolit.tables import save as save_model
from boolit.tables.checks import leaks

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

MODEL_FILE = "model.skops"
COUNTS = ("already", "trained", "diverged", "seconds")  # of a summary


@dataclass(frozen=True)
class CompareResult:
    """The result of a comparison; if it was interrupted, there is only the summary."""

    summary: ExecutionSummary
    rates: Mapping[runs.ActivationSplit, float] = field(default_factory=dict)  # those chosen
    notes: Sequence[str] = ()
    verdict: SplitVerdict | None = None
    model: Path | None = None  # None if all networks diverged on the first split

    def to_json(self) -> dict[str, Any]:
        """Return the result in numbers and in words, for ``study.json`` and ``--json``."""
        summary = {name: getattr(self.summary, name) for name in COUNTS}
        entries = {"complete": self.summary.complete, "summary": summary, "verdict": None, "notes": [*self.notes]}
        if self.verdict is None:
            return entries
        return entries | {
            "verdict": str(self.verdict),
            "claims": self.verdict.wins,
            "comparison": TypeAdapter(SplitVerdict).dump_python(self.verdict, mode="json"),
            "estimates": {name: asdict(score) for name, score in self.verdict.estimates.items()},
            "pairs": [asdict(pair) for pair in self.verdict.pairs],
            "rates": [[*key, rate] for key, rate in self.rates.items()],
            "model": self.model and str(self.model),
        }


@dataclass(frozen=True)
class CompareJob:
    """A comparison that is ready to run."""

    config: CompareConfig
    table: PreparedTable
    plan: Plan  # one run per activation, repeated on every split
    scorer: scoring.Scorer
    seconds: float = 0.0  # approximate duration; 0 until `limit` is called

    @staticmethod
    def prepare(config: CompareConfig, progress: bool | None = None) -> CompareJob:
        """Read the table or encode the images, check the metric on all splits, and plan."""
        config.validate()
        table = prepare_table(runs.table_source(config, progress))
        if config.class_weight and table.task == "regression":
            raise UserError(f"--class-weight {config.class_weight} needs classes, but {config.target!r} is a number")
        job = CompareJob(config, table, runs.make_plan(config, table), scoring.Scorer(table, config.metric))
        job.baseline_scores(scoring.GUESS)
        return job

    @property
    def splits(self) -> range:
        """The numbers of the splits."""
        default = SPLITS_OF_MANY_ROWS if len(self.table.labels) >= MANY_ROWS else SPLITS
        return range(1, 1 + (self.config.splits or default))

    def baseline_scores(self, name: str) -> list[float]:
        """Return the score of a baseline on every split."""
        return [self.scorer(scoring.fit_baseline(name, self.table, number), number) for number in self.splits]

    @cached_property
    def notes(self) -> list[str]:
        """What to know before training: how columns were read, what is left out, possible leaks and rare classes."""
        table, regression = self.table, self.table.task == "regression"
        notes = [f"{table.without_target:,} rows without a target are left out"] if table.without_target else []
        notes += [f"column {name!r} is not used: {reason}" for name, reason in table.unused.items()]
        notes += table.preparation.notes_
        if self.config.path.is_file():
            kind, fix = "R²" if regression else "balanced accuracy", "use --drop if it is not known beforehand"
            for name, score in leaks(table.columns, scoring.targets(table), regression).items():
                notes.append(f"column {name!r} alone predicts the target almost perfectly ({kind} {score:.3f}); {fix}")
        return [*notes, self.scorer.note] if self.scorer.note else notes

    def description(self) -> list[str]:
        """Return lines on target, rows and columns."""
        table, kinds = self.table, Counter(self.table.preparation.kinds_.values())
        train, valid, test = (f"{len(rows):,}" for rows in table.splitter.rows(1).values())
        return [
            f"Target: {table.source.target}, {f'{len(table.classes)} classes' if table.classes else 'a number'}",
            f"Rows: {train} to train on, {valid} to validate on, {test} to test on",
            f"Columns: {', '.join(f'{kind} {count}' for kind, count in kinds.items())}; {table.x.shape[1]} features",
            f"Metric: {self.scorer.metric.name}; {len(self.splits)} {'seeds' if self.config.time else 'splits'}",
        ]

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the network of every activation."""
        return {run.activation: run.parameters for run in self.plan.runs}

    def limit(self, out: Path) -> CompareJob:
        """Return the job with an estimate of its duration, and with fewer epochs if it must fit into ``minutes``."""
        config, job, epochs = self.config, self, self.plan.study.training.epochs
        per_epoch = runs.seconds_per_epoch(runs.trial_plan(self.plan, self.splits, config.rates))
        if config.minutes is not None and config.epochs is None:
            saved = _saved(out)
            if saved.get("minutes") == config.minutes:  # decided once: the same command resumes
                epochs = saved["study"]["training"]["epochs"]
            else:
                while epochs > runs.MIN_LIMITED_EPOCHS and per_epoch * self._run_epochs(epochs) > 60 * config.minutes:
                    epochs -= 1
            job = replace(self, plan=runs.make_plan(replace(config, epochs=epochs), self.table))
        return replace(job, seconds=per_epoch * self._run_epochs(epochs))

    def _run_epochs(self, epochs: int) -> int:
        """Return the epochs of all runs of an activation, if none stops early."""
        return len(self.splits) * (len(self.config.rates) * runs.trial_epochs(epochs) + epochs)

    def run(
        self,
        out: Path,
        progress: bool | None = None,
        cluster: Cluster | None = None,
        command: str = "",
    ) -> CompareResult:
        """Train what is missing from the results folder, score it, and save the model. Options as for `execute`."""
        self._check_folder(out)
        with Store(out) as store, store.writing():
            save_study(self.plan, out, "compare", command, minutes=self.config.minutes)
            trials = runs.trial_plan(self.plan, self.splits, self.config.rates)
            summary = execute(trials, store, progress=progress, cluster=cluster)
            if not summary.complete:
                return CompareResult(summary)
            rates = runs.choose_rates(store.frame(run.key for run in trials.runs))
            finals = runs.final_plan(self.plan, rates)
            last = execute(finals, store, progress=progress, cluster=cluster)
            summary = replace(last, **{name: getattr(summary, name) + getattr(last, name) for name in COUNTS})
            if not summary.complete:
                return CompareResult(summary)
            with show_working("scoring networks and baselines", progress):
                verdict, chosen = self._conclude(finals, store)
            notes, model = [*self.notes], out / MODEL_FILE if chosen else None
            if chosen:
                notes.append(self._save(chosen, verdict, store))
            result = CompareResult(summary, rates, notes, verdict, model)
            more = {"minutes": self.config.minutes, "keys": [run.key for run in finals.runs]}
            save_study(self.plan, out, "compare", command, **more, **result.to_json())
            return result

    def _check_folder(self, out: Path) -> None:
        """Refuse to overwrite the model of another table or target."""
        source, data = self.table.source, _saved(out).get("study", {}).get("data", {})
        path, target = Path(data.get("path", source.path)), data.get("target", source.target)
        if (path.resolve(), target) != (Path(source.path).resolve(), source.target):
            raise UserError(f"{out} holds the comparison of {target!r} of {path.name}; choose another folder with --out")

    def _conclude(self, finals: Plan, store: Store) -> tuple[SplitVerdict, RunConfig | None]:
        """Return the verdict and the run of the saved model; a diverged network scores like guessing."""
        guesses, rows = self.baseline_scores(scoring.GUESS), self.table.splitter.rows(1)
        frame = store.frame(run.key for run in finals.runs)
        losses = dict(zip(frame["key"], runs.losses(frame), strict=True))
        usable = [run for run in finals.runs if losses[run.key] < math.inf]
        scores = {spec: [*guesses] for spec in (*self.config.activations, scoring.GUESS)}
        diverged = dict.fromkeys(self.config.activations, len(self.splits))
        for run in usable:
            assert run.split is not None
            scores[run.activation][run.split - 1] = self.scorer(self._network(run, store), run.split)
            diverged[run.activation] -= 1
        scores |= {name: self.baseline_scores(name) for name in (scoring.LINEAR, scoring.BOOSTING)}
        verdict = SplitVerdict(
            self.scorer.metric,
            len(rows["test"]),
            len(rows["train"]) + len(rows["valid"]),
            scores,
            scoring.GUESS,
            "guessing the mean" if self.table.task == "regression" else "guessing the most frequent class",
            (scoring.LINEAR, scoring.BOOSTING),
            diverged,
            one_split=self.config.time is not None,
        )
        return verdict, min((run for run in usable if run.split == 1), key=lambda run: losses[run.key], default=None)

    def _network(self, run: RunConfig, store: Store) -> scoring.Estimator:
        return scoring.network_estimator(run, self.table, load_file(store.weights(run.key)))

    def _save(self, run: RunConfig, verdict: SplitVerdict, store: Store) -> str:
        """Save a network as the model of the folder, and return a note on it."""
        model = scoring.pipeline(self._network(run, store), 1, self.table)
        model.about_ = {
            "target": self.table.source.target,
            "activation": run.activation,
            "metric": self.scorer.metric.key,
            "expected": asdict(verdict.estimates[run.activation]),
            "verdict": str(verdict),
        }
        save_model(model, store.folder / MODEL_FILE)
        chosen, name = "with the lowest validation loss on the first split", paper_name(run.activation)
        return f"the saved model is the network of {name} {chosen}; on new rows, expect {verdict.score(run.activation)}"


def _saved(out: Path) -> dict[str, Any]:
    """Return the entries of the ``study.json`` of a results folder, or none if there is no such file."""
    with suppress(OSError, ValueError):
        return dict(json.loads((out / SAVED).read_text(encoding="utf-8")))
    return {}
