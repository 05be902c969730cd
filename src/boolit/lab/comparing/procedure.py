"""The procedure: prepare the table, choose the rates, train the seeds, report, and save the best model.

Everything trained is in the store of the output folder: killed at any moment, the same call goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from boolit.lab.comparing.best import best_record, figures, write_best
from boolit.lab.comparing.question import PROFILE, Question, study_of
from boolit.lab.comparing.rates import chosen_rates
from boolit.lab.execute import Summary, execute
from boolit.lab.reports.report import Report, write_report
from boolit.lab.results.statistics import Method, metric_of
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.studies import Plan, StudyFile, plan
from boolit.lab.tables import Prepared


@dataclass(frozen=True)
class Best:
    """The model that was saved: where, whose, and its figures in the target's own unit."""

    path: Path
    activation: str
    seed: int
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Compared:
    """What a comparison found; ``report`` and ``best`` are None if it was interrupted before there was anything to tell."""

    rates: Mapping[str, float]
    summary: Summary
    report: Report | None = None
    best: Best | None = None


@dataclass(frozen=True)
class Comparing:
    """A question on its way to an answer: the table as prepared, and what will be trained."""

    question: Question
    table: Prepared
    file: StudyFile
    planned: Plan

    @staticmethod
    def of(question: Question, shown: bool | None = None) -> Comparing:
        """Reads and prepares the table, and plans; ``shown`` shows or hides the progress of it."""
        table = question.checked().prepared(shown)
        file = study_of(question, table)
        return Comparing(question, table, file, plan(file, PROFILE, seeds=1))

    @property
    def parameters(self) -> dict[str, int]:
        """How many each activation's network has."""
        return {str(run.config["activation"]): int(str(run.config["parameters"])) for run in self.planned.runs}

    def run(self, out: Path, progress: bool | None = None, method: Method | None = None) -> Compared:
        """Trains what is not in the folder yet, and writes the report and the best model there."""
        with Store(out) as store:
            rates, before = chosen_rates(self.planned, self.table.rows["train"], store, progress)
            if rates is None:
                return Compared({}, before)
            final = plan(self._with(rates), PROFILE)
            summary = _both(before, execute(final, store, progress))
            keys = {run.key for run in final.runs}
            records = [record for record in store.records() if record.key in keys]
            if not records:
                return Compared(rates, summary)
            report = write_report(records, store, final.study.title, None, method)
            return Compared(rates, summary, report, self._best(records, store) if summary.complete else None)

    def _with(self, rates: Mapping[str, float]) -> StudyFile:
        own = {spec: {"learning_rate": rate} for spec, rate in rates.items()}
        return replace(self.file, tables={**self.file.tables, "hparams": own})

    def _best(self, records: Sequence[Record], store: Store) -> Best | None:
        best = best_record(records, metric_of(records))
        if best is None:
            return None
        path = write_best(best, self.table, store)
        return Best(path, str(best.config["activation"]), int(str(best.config["seed"])), figures(best))


def _both(first: Summary, second: Summary) -> Summary:
    return Summary(
        already=first.already + second.already,
        trained=first.trained + second.trained,
        diverged=first.diverged + second.diverged,
        elsewhere=second.elsewhere,
        undone=second.undone,
        seconds=first.seconds + second.seconds,
    )
