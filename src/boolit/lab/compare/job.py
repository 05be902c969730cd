"""The procedure: prepare the table, choose the rates, train on every split, report, and save a model.

Everything trained is in the store of the output folder: killed at any moment, the same call continues from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from boolit.lab.common.devices import use_device
from boolit.lab.compare.config import RATES, CompareConfig
from boolit.lab.compare.rates import LOSS, ActivationSplit, activation_split, choose_rates, edge_notes, final_plan, trial_plan
from boolit.lab.compare.saved import BestModel, save_best_model
from boolit.lab.compare.study import PROFILE, compare_study, table_source
from boolit.lab.compare.time_budget import Effort, plan_effort
from boolit.lab.datasets import Dataset, load
from boolit.lab.datasets.tables import PreparedTable, prepare_table
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.reports.page import Report, write_section
from boolit.lab.reports.sections import ReportInfo, SplitScores, compare_section
from boolit.lab.reports.tables.splits import coverage
from boolit.lab.results.resampled import Estimate, ResampledSplits, SplitComparison, compare_splits, estimate
from boolit.lab.results.scores import metric_of
from boolit.lab.results.store import Store
from boolit.lab.results.verdicts import SplitVerdict
from boolit.lab.runs import Metric, Record
from boolit.lab.studies import Plan
from boolit.lab.studies import plan as plan_study

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

MAJORITY, MEAN = "majority class", "target mean"
BASELINE_TEXTS = {MAJORITY: "guessing the majority class", MEAN: "guessing the mean"}


@dataclass(frozen=True)
class CompareResult:
    """What a comparison found; everything but the ``summary`` is None if it was interrupted before there was a result.

    ``rates`` are by activation and split; ``notes`` say what was left out to save time, and where the highest or lowest rate
    was chosen on most splits. ``verdict`` as a string is what was found in words, and has the numbers; ``report`` is where it
    was written, ``saved`` the model for `boolit.load`, with the score to expect.

    Example:
        >>> from boolit.lab import CompareResult, ExecutionSummary
        >>> stopped = CompareResult(ExecutionSummary(0, 20, 0, 0, 40, 9.5))
        >>> stopped.to_json()["complete"], stopped.to_json()["verdict"]
        (False, None)
    """

    summary: ExecutionSummary
    rates: Mapping[ActivationSplit, float] | None = None
    notes: Sequence[str] = ()
    verdict: SplitVerdict | None = None
    report: Report | None = None
    saved: BestModel | None = None

    def to_json(self) -> dict[str, Any]:
        """What was found, in numbers and in words."""
        found = {"complete": self.summary.complete, "summary": vars(self.summary)}
        files = self.report.to_json() if self.report else {"tables": {}, "files": []}
        return found | (self._verdict_json(self.verdict) if self.verdict else {"verdict": None}) | files

    def _verdict_json(self, verdict: SplitVerdict) -> dict[str, Any]:
        comparison, saved = verdict.comparison, self.saved
        rates: dict[str, dict[int, float]] = {}
        for (spec, split), rate in (self.rates or {}).items():
            rates.setdefault(spec, {})[split] = rate
        scores = {name: asdict(own) | {"scores": list(comparison.scores[name])} for name, own in comparison.estimates.items()}
        return {
            "verdict": str(verdict),
            "claims": verdict.wins,
            "covers": coverage(comparison),
            "metric": comparison.metric.key,
            "splits": vars(comparison.splits),
            "reference": verdict.reference,
            "activations": {name: {**scores[name], "rates": rates.get(name, {})} for name in verdict.activations},
            "baseline": {"name": verdict.baseline, **scores[verdict.baseline]},
            "pairs": [asdict(pair) for pair in comparison.pairs],
            "saved": saved and {**vars(saved), "path": str(saved.path), "expected": asdict(saved.expected)},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class CompareJob:
    """A comparison that is ready to run: the prepared table, and a plan with one run per activation, repeated on every split.

    Args:
        config: what was asked for.
        table: its columns, classes and rows, as prepared.
        plan: one run per activation.
        notes: what was reduced to fit into a number of minutes.

    Example:
        >>> import os, tempfile
        >>> from unittest.mock import patch
        >>> from boolit.lab import CompareConfig, CompareJob
        >>> rows = "".join(f"{i % 7},{i % 5},{'odd' if (i % 7 + i % 5) % 2 else 'even'}\\n" for i in range(140))
        >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, BOOLIT_DATA=folder):  # data prepared there
        ...     table, out = Path(folder, "sums.csv"), Path(folder, "out")
        ...     _ = table.write_text("a,b,sum\\n" + rows)
        ...     config = CompareConfig(table, "sum", activations=("relu", "xnor_ail"), splits=5, rates=(0.01,), epochs=2)
        ...     job = CompareJob.prepare(config, progress=False).fit_minutes(5, out)
        ...     result = job.run(out, progress=False)
        >>> job.to_json()["classes"], job.splits, all(9_500 < count < 10_500 for count in job.parameters.values())
        (['even', 'odd'], range(1, 6), True)
        >>> sorted(result.verdict.activations), result.saved.path.name, result.summary.trained
        (['relu', 'xnor_ail'], 'best.safetensors', 20)
    """

    config: CompareConfig
    table: PreparedTable
    plan: Plan
    notes: Sequence[str] = ()

    @staticmethod
    def prepare(config: CompareConfig, progress: bool | None = None) -> CompareJob:
        """Reads and prepares the table, and plans; ``progress`` shows or hides its progress."""
        config.validate()
        data = table_source(config)
        table = prepare_table(data.spec, progress)
        return CompareJob(config, table, plan_study(compare_study(config, data, table), PROFILE, seeds=1))

    def to_json(self) -> dict[str, Any]:
        """What was read, and the size of the networks."""
        table = self.table
        return {
            "target": table.target,
            "task": table.task,
            "classes": list(table.classes),
            "rows": {**table.rows, "without a target": table.left_out},
            "columns": {column.name: column.kind for column in table.columns},
            "dropped": dict(table.dropped),
            "parameters": self.parameters,
        }

    def fit_minutes(
        self, minutes: float, out: Path, spent: float = 0.0, device: str | torch.device | None = None
    ) -> CompareJob:
        """This comparison, reduced to fit into some minutes on a device, of which ``spent`` seconds are over."""
        config = self.config
        wanted = Effort(len(self.splits), config.rates, self.plan.study.training.epochs)
        given = {"splits": config.splits is not None, "rates": config.rates != RATES, "epochs": config.epochs is not None}
        with use_device(device):
            budget = plan_effort(minutes, self.plan, wanted, [name for name, fixed in given.items() if fixed], out, spent)
        if budget.effort == wanted:
            return replace(self, notes=budget.notes())
        reduced = replace(config, **vars(budget.effort))
        study = compare_study(reduced, self.plan.study.data, self.table)
        return CompareJob(reduced, self.table, plan_study(study, PROFILE, seeds=1), budget.notes())

    @property
    def parameters(self) -> dict[str, int]:
        """How many parameters each activation's network has."""
        return {run.config.activation: run.config.parameters for run in self.plan.runs}

    @property
    def splits(self) -> range:
        """The numbers of the splits."""
        return self.config.split_numbers(sum(self.table.rows.values()))

    def run(
        self,
        out: Path,
        progress: bool | None = None,
        device: str | torch.device | None = None,
        cluster: Cluster | None = None,
    ) -> CompareResult:
        """Trains what is not in the folder yet, and writes the report and a model there.

        ``device`` and ``cluster`` are as for `execute`.
        """
        with Store(out) as store, use_device(device):
            trials = trial_plan(self.plan, self.splits, self.config.rates)
            self._describe(trials).write(out)
            before = execute(trials, store, progress, cluster=cluster)
            if not before.complete:
                return CompareResult(before)
            tried = store.records_of(trials.runs, history=False)
            rates = choose_rates(tried)
            final = final_plan(self.plan, rates)
            info = self._describe(trials, final)
            info.write(out)
            summary = before.add(execute(final, store, progress, cluster=cluster))
            notes = [*self.notes, *edge_notes(rates, self.config.rates)]
            if not summary.complete:
                return CompareResult(summary, rates, notes)
            return self._conclude(CompareResult(summary, rates, notes), store.table_of(final.runs), tried, store, info)

    def _describe(self, trials: Plan, final: Plan | None = None) -> ReportInfo:
        """What the report is of; the final runs are counted before their rates, and so their keys, are known."""
        cohorts = (*trials.cohorts, *(final.cohorts if final else ()))
        info = ReportInfo.of_plan("compare", Plan(self.plan.name, self.plan.study, cohorts, PROFILE))
        unknown = 0 if final else len(self.plan.runs) * len(self.splits)
        return info.model_copy(update={"planned": info.planned + unknown})

    def _conclude(
        self, result: CompareResult, records: Sequence[Record], tried: Sequence[Record], store: Store, info: ReportInfo
    ) -> CompareResult:
        dataset = load(self.plan.study.data)
        outcomes = Outcomes.of(records, self.config.activations, self.splits, metric_of(records), dataset)
        baseline = outcomes.baseline
        verdict = SplitVerdict(outcomes.compare(), self.config.reference_activation, baseline, BASELINE_TEXTS[baseline])
        saved, first = None, self.splits[0]
        chosen = outcomes.choose(first)
        if chosen is not None:
            record, expected = outcomes.records[chosen, first], outcomes.expected()
            saved = save_best_model(record, verdict, expected, self.table, dataset, store)
        scores = SplitScores(
            scores={name: list(own) for name, own in verdict.comparison.scores.items()},
            tested=outcomes.splits.tested,
            others=outcomes.splits.others,
            reference=verdict.reference,
            baseline=baseline,
            baseline_text=verdict.baseline_text,
            diverged=outcomes.diverged(),
        )
        paragraphs = [*([saved.describe(verdict)] if saved else []), *result.notes]
        info = info.model_copy(update={"splits": scores, "paragraphs": paragraphs})
        info.write(store.folder)
        report = write_section(compare_section(records, info, tried), store.folder)
        return replace(result, verdict=verdict, report=report, saved=saved)


@dataclass(frozen=True)
class Outcomes:
    """The final runs of a comparison by activation and split, and what the baseline scores on each split."""

    records: Mapping[ActivationSplit, Record]
    activations: Sequence[str]
    numbers: Sequence[int]
    metric: Metric
    splits: ResampledSplits
    baseline: str
    baseline_scores: Sequence[float]

    @staticmethod
    def of(
        records: Iterable[Record], activations: Sequence[str], numbers: Sequence[int], metric: Metric, dataset: Dataset
    ) -> Outcomes:
        """The outcomes on a dataset's resampled splits."""
        tested = len(dataset.splits["test"])
        others = sum(len(split) for name, split in dataset.splits.items() if name != "test")
        return Outcomes(
            records={activation_split(record): record for record in records},
            activations=activations,
            numbers=numbers,
            metric=metric,
            splits=ResampledSplits(len(numbers), tested, others),
            baseline=MEAN if dataset.task == "regression" else MAJORITY,
            baseline_scores=[baseline_score(dataset, number) for number in numbers],
        )

    def compare(self) -> SplitComparison:
        """All activations and the baseline against each other."""
        scores = {spec: [self._score(spec, place) for place in range(len(self.numbers))] for spec in self.activations}
        return compare_splits({**scores, self.baseline: self.baseline_scores}, self.metric, self.splits)

    def diverged(self) -> dict[str, int]:
        """On how many splits each activation diverged."""
        return {
            spec: sum(not _finished(self.records[spec, number], self.metric.key) for number in self.numbers)
            for spec in self.activations
        }

    def choose(self, number: int) -> str | None:
        """The activation with the lowest validation loss on a split; None if all diverged. Test rows play no part in it."""
        records = {spec: self.records[spec, number] for spec in self.activations}
        losses = {spec: own.metrics[LOSS] for spec, own in records.items() if _finished(own, LOSS)}
        return min(losses, key=lambda spec: losses[spec]) if losses else None

    def expected(self) -> Estimate:
        """What to expect on new rows if validation rows choose: done so on every split, and measured on its test rows."""
        picks = [self.choose(number) for number in self.numbers]
        scores = [self.baseline_scores[i] if spec is None else self._score(spec, i) for i, spec in enumerate(picks)]
        return estimate(scores, self.splits, self.metric.percent)

    def _score(self, spec: str, place: int) -> float:
        """A run's metric on its test rows; a network that diverged scores as the baseline does."""
        record = self.records[spec, self.numbers[place]]
        return record.metrics[self.metric.key] if _finished(record, self.metric.key) else self.baseline_scores[place]


def _finished(record: Record, name: str) -> bool:
    return record.state == "finished" and math.isfinite(record.metrics[name])


def baseline_score(dataset: Dataset, number: int) -> float:
    """What the most frequent class, or the mean, of a split's training rows scores on its test rows."""
    assert dataset.pool is not None
    assert dataset.resample is not None
    rows = dataset.resample(number).rows
    train, test = (dataset.pool.y[rows[name]].flatten().double() for name in ("train", "test"))
    if dataset.task == "regression":
        return dataset.unit * float((test - train.mean()).square().mean().sqrt())
    return float((test == torch.bincount(train.long()).argmax()).double().mean())
