"""The procedure: prepare the table, choose learning rates, train on every split, score, conclude, and save a model.

Everything trained is in the store of the results folder. Killed at any moment, the same call continues from there.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from boolit import __version__
from boolit.errors import UserError
from boolit.lab.common.devices import use_device
from boolit.lab.common.progress import show_working
from boolit.lab.compare import CompareConfig, runs, scoring
from boolit.lab.datasets.table import PreparedTable, prepare_table
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.results.splits import Estimate, ResampledSplits, SplitVerdict, estimate
from boolit.lab.results.store import Store
from boolit.lab.runs import Result
from boolit.lab.studies import Plan
from boolit.lab.studies import save as save_study
from boolit.lab.studies.planner import SAVED
from boolit.tables import save as save_model
from boolit.tables.checks import leaks

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

MODEL_FILE, LIMITS_FILE = "model.skops", "limits.json"
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
        """Return the result in numbers and in words."""
        summary = {name: getattr(self.summary, name) for name in ("already", "trained", "diverged", "seconds")}
        entries = {"complete": self.summary.complete, "summary": summary, "verdict": None, "notes": [*self.notes]}
        if self.verdict is None:
            return entries
        return entries | {
            "metric": self.verdict.metric.key,
            "verdict": str(self.verdict),
            "claims": self.verdict.wins,
            "estimates": {name: asdict(score) for name, score in self.verdict.estimates.items()},
            "scores": self.verdict.scores,
            "rates": [[*key, rate] for key, rate in self.rates.items()],
            "pairs": [asdict(pair) for pair in self.verdict.pairs],
            "expected": self.expected and asdict(self.expected),
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
    reductions: Sequence[str] = ()  # what was reduced for ``--minutes``

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

    def to_json(self) -> dict[str, Any]:
        """Return what was read, and the size of the networks."""
        table = self.table
        return {
            "target": table.source.target,
            "classes": table.classes,
            "rows": {name: len(rows) for name, rows in table.rows(1).items()} | {"without target": table.without_target},
            "columns": table.preparation.kinds_,
            "unused": table.unused,
            "parameters": self.parameters,
        }

    @property
    def parameters(self) -> dict[str, int]:
        """Parameters of the network of every activation."""
        return {run.activation: run.parameters for run in self.plan.runs}

    def limit(self, out: Path) -> CompareJob:
        """Return the job with an estimate of its duration, reduced to ``minutes`` if that was asked for."""
        config, epochs, splits = self.config, self.plan.study.training.epochs, len(self.splits)
        per_epoch = runs.seconds_per_epoch(runs.trial_plan(self.plan, self.splits, config.rates))
        if config.minutes is None:
            return replace(self, seconds=per_epoch * runs.run_epochs(splits, len(config.rates), epochs))
        kept, question = out / LIMITS_FILE, repr(config)  # decided once, so that the same command resumes
        limits = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
        if question not in limits:
            limited = runs.limit_effort(config, 60 * config.minutes / per_epoch, splits, epochs)
            limits = {question: {"splits": limited.splits, "rates": limited.rates, "epochs": limited.epochs}}
            out.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(limits), encoding="utf-8")
        limits = limits[question]
        limited = replace(config, **limits | {"rates": tuple(limits["rates"])})
        job = replace(self, config=limited, plan=runs.make_plan(limited, self.table))
        splits, rates, epochs = len(job.splits), len(limited.rates), job.plan.study.training.epochs
        reduced = f"{splits} splits, {rates} learning rates, at most {epochs} epochs"
        notes = [f"reduced to fit --minutes {config.minutes:g}: {reduced}"] if limited != config else []
        return replace(job, seconds=per_epoch * runs.run_epochs(splits, rates, epochs), reductions=notes)

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
            save_study(self.plan, out, "compare", command)
            plan = runs.trial_plan(self.plan, self.splits, self.config.rates)
            summary = execute(plan, store, progress=progress, cluster=cluster)
            if not summary.complete:
                return CompareResult(summary)
            rates = runs.choose_rates(store.results([run.key for run in plan.runs], history=False))
            plan = runs.final_plan(self.plan, rates)
            summary = _add(summary, execute(plan, store, progress=progress, cluster=cluster))
            if not summary.complete:
                return CompareResult(summary)
            results = store.results([run.key for run in plan.runs], history=False)
            with show_working("scoring networks and baselines", progress):
                verdict, expected, chosen = self._conclude({runs.place(each.config): each for each in results}, store)
            model = self._save(chosen, verdict, expected, store) if chosen else None
            notes = [*self.notes, *self.reductions, *runs.edge_notes(rates, self.config.rates)]
            result = CompareResult(summary, rates, notes, verdict, expected, model)
            save_study(self.plan, out, "compare", command, **_report_entries(result, [each.key for each in results]))
            return result

    def _check_folder(self, out: Path) -> None:
        """Refuse to overwrite the model of another table or target."""
        try:
            data = json.loads((out / SAVED).read_text(encoding="utf-8"))["study"]["data"]
            before = (Path(data["path"]).resolve(), data["target"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if before != (Path(self.table.source.path).resolve(), self.table.source.target):
            other = f"{before[1]!r} of {before[0].name}"
            raise UserError(f"{out} holds the comparison of {other}; choose another folder with --out")

    def _conclude(
        self, results: Mapping[runs.ActivationSplit, Result], store: Store
    ) -> tuple[SplitVerdict, Estimate, Result | None]:
        """Return the verdict, the score to expect of the saved model, and its run; a diverged network scores like guessing."""
        specs, rows, metric = self.config.activations, self.table.rows(1), self.scorer.metric
        scores = {spec: [*self.guesses] for spec in (*specs, scoring.GUESS)}
        diverged, chosen = dict.fromkeys(specs, 0), []
        for i, number in enumerate(self.splits):
            usable = {spec: results[spec, number] for spec in specs if runs.finished(results[spec, number])}
            for spec, result in usable.items():
                scores[spec][i] = self.scorer(self._network(result, store), number)
            for spec in specs:
                diverged[spec] += spec not in usable
            chosen.append(min(usable.values(), key=lambda result: result.metrics[runs.LOSS], default=None))
        scores |= {name: self._baseline_scores(name) for name in (scoring.LINEAR, scoring.BOOSTING)}
        splits = ResampledSplits(len(self.splits), len(rows["test"]), len(rows["train"]) + len(rows["valid"]))
        verdict = SplitVerdict(
            metric,
            splits,
            scores,
            self.config.reference,
            scoring.GUESS,
            "guessing the mean" if self.table.task == "regression" else "guessing the most frequent class",
            (scoring.LINEAR, scoring.BOOSTING),
            diverged,
            one_split=self.config.time is not None,
        )
        expected = [scores[run.config.activation if run else scoring.GUESS][i] for i, run in enumerate(chosen)]
        return verdict, estimate(expected, splits, metric.percent), chosen[0]

    def _network(self, result: Result, store: Store) -> scoring.Estimator:
        return scoring.network_estimator(result.config, self.table, load_file(store.weights(result.key)))

    def _save(self, chosen: Result, verdict: SplitVerdict, expected: Estimate, store: Store) -> Path:
        run, path = chosen.config, store.folder / MODEL_FILE
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
        save_model(scoring.pipeline(self._network(chosen, store), run, self.table, about), path)
        return path


def describe_model(result: CompareResult) -> list[str]:
    """Return a sentence on the saved model and the score to expect of it."""
    if result.model is None or result.verdict is None or result.expected is None:
        return []
    form, expected = result.verdict.score_format, result.expected
    low, high = (min(max(value, 0.0), 1.0) if form.percent else value for value in (expected.low, expected.high))
    interval = "" if result.verdict.one_split else f" [{form.number(low)}, {form.number(high)}]"
    numbers = f"{form.number(expected.mean)}{interval}{form.unit}"
    return [
        f"The saved model is the network with the lowest validation loss on the first split. Expected "
        f"{result.verdict.metric.name} on new rows: {numbers}, measured by making the same choice on every split."
    ]


def _report_entries(result: CompareResult, keys: Sequence[str]) -> dict[str, Any]:
    """Return what the report needs besides the runs."""
    assert result.verdict is not None
    verdict = result.verdict
    names = ("reference", "guess", "guess_text", "baselines", "diverged", "one_split")
    entries = {
        "metric": verdict.metric.model_dump(),
        "scores": verdict.scores,
        "tested": verdict.splits.tested,
        "others": verdict.splits.others,
        **{name: getattr(verdict, name) for name in names},
    }
    paragraphs = [*describe_model(result), *result.notes]
    return {"keys": [*keys], "comparison": entries, "verdict": str(verdict), "paragraphs": paragraphs}


def _add(first: ExecutionSummary, second: ExecutionSummary) -> ExecutionSummary:
    counts = {name: getattr(first, name) + getattr(second, name) for name in ("already", "trained", "diverged", "seconds")}
    return replace(second, **counts)
