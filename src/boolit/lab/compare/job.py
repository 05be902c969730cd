"""The procedure: prepare the table, choose learning rates, train on every split, score, conclude, and save a model.

Everything trained is in the store of the results folder. Killed at any moment, the same call continues from there.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file

from boolit import __version__
from boolit.errors import UserError
from boolit.lab.common.devices import use_device
from boolit.lab.common.progress import show_working
from boolit.lab.compare import CompareConfig, runs, scoring
from boolit.lab.datasets.table import PreparedTable, prepare_table
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.results.splits import Estimate, SplitVerdict
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
COLUMN_KINDS = {"number": "numeric", "flag": "true or false", "date": "dates", "category": "categories"}


@dataclass(frozen=True)
class CompareResult:
    """The result of a comparison; if it was interrupted, there is only the summary."""

    summary: ExecutionSummary
    rates: Mapping[runs.ActivationSplit, float] = field(default_factory=dict)  # those chosen
    notes: Sequence[str] = ()
    verdict: SplitVerdict | None = None
    expected: Estimate | None = None  # the score to expect of the saved model on new rows
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
            "expected": self.expected and asdict(self.expected),
            "model": self.model and str(self.model),
            "paragraphs": [*self.model_sentences, *self.notes],
        }

    @property
    def model_sentences(self) -> list[str]:
        """What the saved model is and which score to expect of it; empty if there is none."""
        if self.model is None or self.verdict is None or self.expected is None:
            return []
        form, interval = self.verdict.score_format, ""
        if not self.verdict.one_split:
            ends = (self.expected.low, self.expected.high)
            low, high = (form.number(min(max(end, 0.0), 1.0) if form.percent else end) for end in ends)
            interval = f" [{low}, {high}]"
        return [
            "The saved model is the network with the lowest validation loss on the first split. Expected "
            f"{self.verdict.metric.name} on new rows: {form.number(self.expected.mean)}{interval}{form.unit}, measured by "
            "making the same choice on every split."
        ]


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
        _ = job.guesses
        return job

    @cached_property
    def splits(self) -> range:
        """The numbers of the splits."""
        return self.config.split_numbers(len(self.table.labels))

    @cached_property
    def guesses(self) -> list[float]:
        """Scores of guessing on every split."""
        return self._baseline_scores(scoring.GUESS)

    def _baseline_scores(self, name: str) -> list[float]:
        return [self.scorer(scoring.fit_baseline(name, self.table, number), number) for number in self.splits]

    @cached_property
    def notes(self) -> list[str]:
        """What to know before training: how columns were read, what is left out, possible leaks and rare classes."""
        table, regression = self.table, self.table.task == "regression"
        notes = [f"{table.without_target:,} rows without a target are left out"] if table.without_target else []
        notes += [f"column {name!r} is not used: {reason}" for name, reason in table.unused.items()]
        notes += table.preparation.notes_
        if self.config.path.is_file():
            for name, value in leaks(table.columns, scoring.targets(table), regression).items():
                score = f"{'R²' if regression else 'balanced accuracy'} {value:.3f}"
                notes.append(
                    f"column {name!r} alone predicts the target almost perfectly ({score}); "
                    f"if it is not known beforehand, leave it out with --drop {name!r}"
                )
        return [*notes, self.scorer.note] if self.scorer.note else notes

    def description(self) -> list[str]:
        """Return lines on target, rows and columns."""
        table, rows = self.table, self.table.rows(1)
        kinds = list(table.preparation.kinds_.values())
        columns = ", ".join(f"{kinds.count(kind)} {name}" for kind, name in COLUMN_KINDS.items() if kind in kinds)
        parts = {"train": "train", "valid": "validate", "test": "test"}
        return [
            f"Target: {table.source.target}, {f'{len(table.classes)} classes' if table.classes else 'a number'}",
            f"Rows: {', '.join(f'{len(rows[name]):,} to {verb} on' for name, verb in parts.items())}",
            f"Columns: {columns}; {table.x.shape[1]} features",
            f"Metric: {self.scorer.metric.name}; {len(self.splits)} {'seeds' if self.config.time else 'splits'}",
        ]

    @property
    def epochs(self) -> int:
        """Maximum number of epochs of a final run."""
        return self.plan.study.training.epochs

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the network of every activation."""
        return {run.activation: run.parameters for run in self.plan.runs}

    def limit(self, out: Path) -> CompareJob:
        """Return the job with an estimate of its duration, and with fewer epochs if it must fit into ``minutes``."""
        config, job, splits = self.config, self, len(self.splits)
        per_epoch = runs.seconds_per_epoch(runs.trial_plan(self.plan, self.splits, config.rates))
        if config.minutes is not None and config.epochs is None:
            epochs, saved = self.epochs, _saved(out)
            if saved.get("minutes") == config.minutes:  # decided once: the same command resumes
                epochs = saved["study"]["training"]["epochs"]
            else:
                most = 60 * config.minutes / per_epoch
                while epochs > runs.MIN_LIMITED_EPOCHS and runs.run_epochs(splits, len(config.rates), epochs) > most:
                    epochs -= 1
            job = replace(self, plan=runs.make_plan(replace(config, epochs=epochs), self.table))
        return replace(job, seconds=per_epoch * runs.run_epochs(splits, len(config.rates), job.epochs))

    def run(
        self,
        out: Path,
        progress: bool | None = None,
        device: str | torch.device | None = None,
        cluster: Cluster | None = None,
        command: str = "",
    ) -> CompareResult:
        """Train what is missing from the results folder, score it, and save the model. Options as for `execute`."""
        self._check_folder(out)
        with Store(out) as store, use_device(device), store.writing():
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
                verdict, expected, chosen = self._conclude(finals, store)
            model = self._save(chosen, verdict, expected, store) if chosen else None
            notes = [*self.notes, *runs.edge_notes(rates, self.config.rates)]
            result = CompareResult(summary, rates, notes, verdict, expected, model)
            more = {"minutes": self.config.minutes, "keys": [run.key for run in finals.runs]}
            save_study(self.plan, out, "compare", command, **more, **result.to_json())
            return result

    def _check_folder(self, out: Path) -> None:
        """Refuse to overwrite the model of another table or target."""
        source, data = self.table.source, _saved(out).get("study", {}).get("data", {})
        path, target = data.get("path", source.path), data.get("target", source.target)
        if (Path(path).resolve(), target) != (Path(source.path).resolve(), source.target):
            other = f"{target!r} of {Path(path).name}"
            raise UserError(f"{out} holds the comparison of {other}; choose another folder with --out")

    def _conclude(self, finals: Plan, store: Store) -> tuple[SplitVerdict, Estimate, RunConfig | None]:
        """Return the verdict, the score to expect of the saved model, and its run; a diverged network scores like guessing."""
        specs, rows, metric = self.config.activations, self.table.rows(1), self.scorer.metric
        frame = store.frame(run.key for run in finals.runs)
        losses = dict(zip(frame["key"], runs.losses(frame), strict=True))
        scores = {spec: [*self.guesses] for spec in (*specs, scoring.GUESS)}
        diverged, chosen = dict.fromkeys(specs, len(self.splits)), []
        for i, number in enumerate(self.splits):
            usable = [run for run in finals.runs if run.split == number and losses[run.key] < math.inf]
            for run in usable:
                scores[run.activation][i] = self.scorer(self._network(run, store), number)
                diverged[run.activation] -= 1
            chosen.append(min(usable, key=lambda run: losses[run.key], default=None))
        scores |= {name: self._baseline_scores(name) for name in (scoring.LINEAR, scoring.BOOSTING)}
        verdict = SplitVerdict(
            metric,
            len(rows["test"]),
            len(rows["train"]) + len(rows["valid"]),
            scores,
            scoring.GUESS,
            "guessing the mean" if self.table.task == "regression" else "guessing the most frequent class",
            (scoring.LINEAR, scoring.BOOSTING),
            diverged,
            one_split=self.config.time is not None,
        )
        expected = [scores[run.activation if run else scoring.GUESS][i] for i, run in enumerate(chosen)]
        return verdict, verdict.estimate(expected), chosen[0]

    def _network(self, run: RunConfig, store: Store) -> scoring.Estimator:
        return scoring.network_estimator(run, self.table, load_file(store.weights(run.key)))

    def _save(self, run: RunConfig, verdict: SplitVerdict, expected: Estimate, store: Store) -> Path:
        path = store.folder / MODEL_FILE
        about = {
            "target": self.table.source.target,
            "activation": run.activation,
            "parameters": run.parameters,
            "learning_rate": run.training.learning_rate,
            "chosen": f"lowest validation loss on split {run.split}",
            "metric": self.scorer.metric.key,
            "expected": asdict(expected),
            "verdict": str(verdict),
            "versions": {"boolit": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
        }
        save_model(scoring.pipeline(self._network(run, store), run, self.table, about), path)
        return path


def _saved(out: Path) -> dict[str, Any]:
    """Return the entries of the ``study.json`` of a results folder, or none if there is no such file."""
    with suppress(OSError, ValueError):
        return dict(json.loads((out / SAVED).read_text(encoding="utf-8")))
    return {}
