"""The procedure: prepare the table, choose the rates, train on every split, report, and save a model.

Everything trained is in the store of the output folder: killed at any moment, the same call goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from boolit.lab.compare.budget import Effort, decide
from boolit.lab.compare.config import PROFILE, RATES, Question, study_of
from boolit.lab.compare.outcomes import GUESSES, Outcomes
from boolit.lab.compare.rates import Place, chosen_rates, edge_notes, final_plan, trial_plan
from boolit.lab.compare.saved import Saved, write_saved
from boolit.lab.datasets import Dataset, load
from boolit.lab.datasets.tables import Prepared
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.reports.names import metric_label
from boolit.lab.reports.page import Report, split_figures, split_tables, write_pages
from boolit.lab.results.resampled import Estimate
from boolit.lab.results.scores import Notation
from boolit.lab.results.statistics import metric_of
from boolit.lab.results.store import Store
from boolit.lab.results.verdicts import SplitVerdict
from boolit.lab.runs import Record
from boolit.lab.studies import Plan, plan


@dataclass(frozen=True)
class Compared:
    """What a comparison found; all but the summary is None if it was interrupted before there was anything to tell.

    ``rates`` are by activation and split; ``notes`` say what was left out for time, and where a rate at the edge of those tried
    was chosen on most splits.
    """

    summary: ExecutionSummary
    rates: Mapping[Place, float] | None = None
    notes: Sequence[str] = ()
    verdict: SplitVerdict | None = None
    report: Report | None = None
    saved: Saved | None = None


@dataclass(frozen=True)
class Comparing:
    """A question on its way to an answer: the table as prepared, and one run of each activation, to be done on every split.

    ``notes`` say what was taken off for a budget of time.
    """

    question: Question
    table: Prepared
    planned: Plan
    notes: Sequence[str] = ()

    @staticmethod
    def of(question: Question, shown: bool | None = None) -> Comparing:
        """Reads and prepares the table, and plans; ``shown`` shows or hides the progress of it."""
        table = question.checked().prepared(shown)
        return Comparing(question, table, plan(study_of(question, table), PROFILE, seeds=1))

    def within(self, minutes: float, out: Path, spent: float = 0.0) -> Comparing:
        """This comparison with as much less of it as makes it fit into some minutes, ``spent`` seconds of which are over."""
        asked = self.question
        wanted = Effort(len(self.splits), asked.rates, self.planned.study.training.epochs)
        given = {"splits": asked.splits is not None, "rates": asked.rates != RATES, "epochs": asked.epochs is not None}
        budget = decide(minutes, self.planned, wanted, [name for name, fixed in given.items() if fixed], out, spent)
        if budget.effort == wanted:
            return replace(self, notes=budget.notes())
        reduced = replace(asked, **vars(budget.effort))
        return Comparing(reduced, self.table, plan(study_of(reduced, self.table), PROFILE, seeds=1), budget.notes())

    @property
    def parameters(self) -> dict[str, int]:
        """How many each activation's network has."""
        return {run.config.activation: run.config.parameters for run in self.planned.runs}

    @property
    def splits(self) -> range:
        """The numbers of the splits."""
        return self.question.split_numbers(sum(self.table.rows.values()))

    @property
    def dataset(self) -> Dataset:
        """The table as networks read it."""
        return load(self.planned.study.data)

    def run(self, out: Path, progress: bool | None = None) -> Compared:
        """Trains what is not in the folder yet, and writes the report and a model there."""
        with Store(out) as store:
            trials = trial_plan(self.planned, self.splits, self.question.rates)
            before = execute(trials, store, progress)
            if not before.complete:
                return Compared(before)
            tried = _records(trials, store, history=False)
            rates = chosen_rates(tried)
            final = final_plan(self.planned, rates)
            summary = before.add(execute(final, store, progress))
            notes = [*self.notes, *edge_notes(rates, self.question.rates)]
            if not summary.complete:
                return Compared(summary, rates, notes)
            return self._concluded(summary, rates, notes, _records(final, store), tried, store)

    def _concluded(
        self,
        summary: ExecutionSummary,
        rates: Mapping[Place, float],
        notes: Sequence[str],
        records: Sequence[Record],
        tried: Sequence[Record],
        store: Store,
    ) -> Compared:
        outcomes = Outcomes.of(records, self.question.activations, self.splits, metric_of(records), self.dataset)
        comparison = outcomes.compared()
        verdict = SplitVerdict(comparison, self.question.compared_with, outcomes.baseline, GUESSES[outcomes.baseline])
        resample = self.dataset.resample
        assert resample is not None
        saved = write_saved(outcomes, verdict, self.table, resample(self.splits[0]), store)
        title = f"{self.planned.study.title}: {metric_label(outcomes.metric)}"
        paragraphs = [str(verdict), *([saved_text(saved, verdict.notation)] if saved else []), *notes]
        tables = split_tables(verdict, title, self.parameters, outcomes.diverged())
        figures = split_figures(verdict, records)
        report = write_pages([*records, *tried], store, self.planned.study.title, paragraphs, tables, figures)
        return Compared(summary, rates, notes, verdict, report, saved)


def saved_text(saved: Saved, notation: Notation) -> str:
    """What a user is told of the saved model."""
    words = f"{saved.metric.removeprefix('test_').replace('rmse', 'RMSE')} on new rows"
    return f"Saved: {saved.activation}, expected {words}: {interval_text(saved.expected, notation)}. {saved.reason}"


def interval_text(found: Estimate, notation: Notation) -> str:
    """A mean with its interval and unit."""
    low, high = (max(0.0, found.low), min(1.0, found.high)) if notation.percent else (found.low, found.high)
    return f"{notation.number(found.mean)} [{notation.number(low)}, {notation.number(high)}]{notation.unit}"


def _records(planned: Plan, store: Store, history: bool = True) -> list[Record]:
    return store.records_of(planned.runs, history)
