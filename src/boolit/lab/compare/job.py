"""The procedure: prepare the table, choose learning rates, train on every split, score, conclude, and save a model.

Everything trained is in the store of the results folder. Killed at any moment, the same call continues from there.
"""

from __future__ import annotations

import json
import math
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
from boolit.lab.compare import scoring
from boolit.lab.compare.config import RATES, CompareConfig
from boolit.lab.compare.effort import CompareProgress, Effort, limit_effort, seconds_per_epoch
from boolit.lab.compare.images import TARGET, image_table
from boolit.lab.compare.runs import LOSS, ActivationSplit, choose_rates, edge_notes, final_plan, make_plan, place, trial_plan
from boolit.lab.datasets.table import PreparedTable, TableSource, prepare_table
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

MODEL_FILE = "model.skops"
COLUMN_KINDS = {"number": "numeric", "flag": "true or false", "date": "dates", "category": "categories"}


@dataclass(frozen=True)
class CompareResult:
    """The result of a comparison; if it was interrupted, only the summary is complete.

    Args:
        summary: counts of the runs.
        rates: chosen learning rates by activation and split.
        notes: what the user should know.
        verdict: the verdict with all scores.
        expected: the score to expect of the saved model on new rows.
        model: the saved model.
    """

    summary: ExecutionSummary
    rates: Mapping[ActivationSplit, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    verdict: SplitVerdict | None = None
    expected: Estimate | None = None
    model: Path | None = None

    @property
    def text(self) -> str:
        """The verdict in words."""
        return str(self.verdict or "")

    def to_json(self) -> dict[str, Any]:
        """Return the result in numbers and in words."""
        summary = {name: getattr(self.summary, name) for name in ("already", "trained", "diverged", "seconds")}
        entries = {"complete": self.summary.complete, "summary": summary, "verdict": self.text or None, "notes": [*self.notes]}
        if self.verdict is None:
            return entries
        return entries | {
            "metric": self.verdict.metric.key,
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
    r"""A comparison that is ready to run.

    Args:
        config: the options.
        table: the prepared table.
        plan: one run per activation, repeated on every split.
        scorer: the metric.
        seconds: approximate duration; 0 until `limit` is called.
        reductions: what was reduced for ``--minutes``.

    Example:
        >>> import tempfile
        >>> rows = "".join(f"{i % 7},{i % 5},{'odd' if (i % 7 + i % 5) % 2 else 'even'}\n" for i in range(140))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "sums.csv")
        ...     _ = path.write_text("a,b,sum\n" + rows)
        ...     config = CompareConfig(path, "sum", activations=("relu", "xnor_ail"), splits=5, rates=(0.01,), epochs=2)
        ...     result = CompareJob.prepare(config).run(Path(folder, "out"), progress=False)
        >>> sorted(result.verdict.activations), result.model.name, result.summary.trained
        (['relu', 'xnor_ail'], 'model.skops', 20)
    """

    config: CompareConfig
    table: PreparedTable
    plan: Plan
    scorer: scoring.Scorer
    seconds: float = 0.0
    reductions: Sequence[str] = ()

    @staticmethod
    def prepare(config: CompareConfig, progress: bool | None = None) -> CompareJob:
        """Read the table or encode the images, check the metric on all splits, and plan."""
        config.validate()
        names = ("target", "task", "test", "validation", "levels", "drop", "keep", "groups", "time", "class_weight")
        options = {"path": str(config.path), **{name: getattr(config, name) for name in names}}
        if config.path.is_dir():
            path = image_table(config.path, config.weights, progress)
            options |= {"path": str(path), "target": TARGET, "task": "classify"}
        source = TableSource(resampled=True, **options)
        table = prepare_table(source)
        if config.class_weight and table.task == "regression":
            raise UserError(f"--class-weight {config.class_weight} needs classes, but {config.target!r} is a number")
        job = CompareJob(config, table, make_plan(config, source, table), scoring.Scorer(table, config.metric))
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

    @property
    def effort(self) -> Effort:
        """How much is trained of every activation."""
        return Effort(len(self.splits), self.config.rates, self.plan.study.training.epochs)

    def limit(self, out: Path) -> CompareJob:
        """Return the job with an estimate of its duration, reduced to ``minutes`` if that was asked for."""
        config, wanted = self.config, self.effort
        per_epoch = seconds_per_epoch(self.plan, wanted)
        if config.minutes is None:
            return replace(self, seconds=per_epoch * wanted.run_epochs)
        given = {"splits": config.splits is not None, "rates": config.rates != RATES, "epochs": config.epochs is not None}
        effort = limit_effort(wanted, config.minutes, per_epoch, [name for name in given if given[name]], out)
        pairs = {
            "splits": (effort.splits, wanted.splits),
            "learning rates": (len(effort.rates), len(wanted.rates)),
            "epochs": (effort.epochs, wanted.epochs),
        }
        reduced = [f"{fewer} {name} instead of {full}" for name, (fewer, full) in pairs.items() if fewer < full]
        notes = [f"to keep to --minutes {config.minutes:g}: {', '.join(reduced)}"] if reduced else []
        seconds = per_epoch * effort.run_epochs
        if seconds > 60 * config.minutes:
            notes.append(f"--minutes {config.minutes:g} is too short; fewer rows or activations help")
        config = replace(config, **vars(effort))
        return CompareJob(config, self.table, make_plan(config, self.table.source, self.table), self.scorer, seconds, notes)

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
        bars = CompareProgress(len(self.config.activations) * self.effort.run_epochs, progress)

        def train(phase: str, plan: Plan) -> tuple[ExecutionSummary, list[Result]]:
            keys = [run.key for run in plan.runs]
            bars.phase(phase, plan.runs[0].training.epochs, len(store.finished(keys)))
            return execute(plan, store, progress=bars, cluster=cluster), store.results(keys, history=False)

        with Store(out) as store, use_device(device), store.writing(), bars:
            save_study(self.plan, out, "compare", command)
            summary, trials = train("choosing learning rates", trial_plan(self.plan, self.splits, self.config.rates))
            if not summary.complete:
                return CompareResult(summary)
            rates = choose_rates(trials)
            measured, results = train("training", final_plan(self.plan, rates))
            summary = _add(summary, measured)
            notes = [*self.reductions, *edge_notes(rates, self.config.rates)]
            if not summary.complete:
                return CompareResult(summary, rates, notes)
            bars.phase("baselines", 0)
            result = self._conclude({place(each.config): each for each in results}, store)
            result = replace(result, summary=summary, rates=rates, notes=[*self.notes, *notes])
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

    def _conclude(self, results: Mapping[ActivationSplit, Result], store: Store) -> CompareResult:
        config, regression = self.config, self.table.task == "regression"
        scores = {spec: [self._score(results[spec, number], store) for number in self.splits] for spec in config.activations}
        scores[scoring.GUESS] = self.guesses
        scores |= {name: self._baseline_scores(name) for name in (scoring.LINEAR, scoring.BOOSTING)}
        rows = self.table.rows(1)
        splits = ResampledSplits(len(self.splits), len(rows["test"]), len(rows["train"]) + len(rows["valid"]))
        verdict = SplitVerdict(
            self.scorer.metric,
            splits,
            scores,
            config.reference_activation,
            scoring.GUESS,
            "guessing the mean" if regression else "guessing the most frequent class",
            (scoring.LINEAR, scoring.BOOSTING),
            {spec: sum(not _finished(results[spec, number]) for number in self.splits) for spec in config.activations},
            one_split=config.time is not None,
        )
        choices = [self._choose(results, number) for number in self.splits]
        expected = [scores[choice or scoring.GUESS][i] for i, choice in enumerate(choices)]
        interval = estimate(expected, splits, self.scorer.metric.percent)
        result = CompareResult(ExecutionSummary(0, 0, 0, 0, 0.0), verdict=verdict, expected=interval)
        if choices[0] is None:
            return result
        return replace(result, model=self._save(results[choices[0], self.splits[0]], result, store))

    def _score(self, result: Result, store: Store) -> float:
        """Return the score of a network on its test rows; a diverged network scores like guessing."""
        number = place(result.config)[1]
        if not _finished(result):
            return self.guesses[self.splits.index(number)]
        return self.scorer(scoring.network_estimator(result.config, self.table, load_file(store.weights(result.key))), number)

    def _choose(self, results: Mapping[ActivationSplit, Result], number: int) -> str | None:
        """Return the activation with the lowest validation loss on a split, or None if all diverged."""
        finished = {spec: results[spec, number] for spec in self.config.activations if _finished(results[spec, number])}
        return min(finished, key=lambda spec: finished[spec].metrics[LOSS]) if finished else None

    def _save(self, chosen: Result, result: CompareResult, store: Store) -> Path:
        run, path = chosen.config, store.folder / MODEL_FILE
        about = {
            "target": self.table.source.target,
            "activation": run.activation,
            "parameters": run.parameters,
            "learning_rate": run.training.learning_rate,
            "chosen": f"lowest validation loss on split {run.split}",
            "metric": self.scorer.metric.key,
            "expected": asdict(result.expected) if result.expected else None,
            "verdict": result.text,
            "versions": {"boolit": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
        }
        estimator = scoring.network_estimator(run, self.table, load_file(store.weights(chosen.key)))
        save_model(scoring.pipeline(estimator, run, self.table, about), path)
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
    return {"keys": [*keys], "comparison": entries, "verdict": result.text, "paragraphs": paragraphs}


def _finished(result: Result) -> bool:
    return result.state == "finished" and math.isfinite(result.metrics[LOSS])


def _add(first: ExecutionSummary, second: ExecutionSummary) -> ExecutionSummary:
    counts = {name: getattr(first, name) + getattr(second, name) for name in ("already", "trained", "diverged", "seconds")}
    return replace(second, **counts)
