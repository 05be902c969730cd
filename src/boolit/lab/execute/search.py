"""Searching hyper-parameters: each round is one cohort, and everything tried is in the store, so a search resumes by itself.

Nothing that a study reports takes part in it: its runs have no test rows (`boolit.lab.datasets.holdout`), and other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from boolit.errors import UserError
from boolit.lab.datasets import load
from boolit.lab.datasets.holdout import for_choosing
from boolit.lab.execute import execute
from boolit.lab.reports.page import write_section
from boolit.lab.reports.sections import ReportInfo, search_section, this_command
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run, RunConfig
from boolit.lab.studies import Plan, Study, StudyFile, check_memory, plan
from boolit.lab.studies.planner import MEMORY, cohorts
from boolit.lab.studies.search import Bounds, Trial, best_first, hparams_to_toml, searched_hparams
from boolit.lab.training.checkpoint import EVERY_SECONDS
from boolit.lab.training.metrics import METRIC_OF_TASK

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

ROUNDS, TRIALS, SEEDS, FINALISTS = 4, 120, 120, 10  # a:mnist
# Where seeds begin: none is a study's own, and a setting is not tried for the final with a seed that chose it.
ROUND_SEEDS, FINAL_SEEDS = 2_000_000, 3_000_000


@dataclass(frozen=True)
class FinalTrial:
    """A setting that was tried with many seeds: the mean of the metric, the share of seeds that solved the task."""

    setting: Mapping[str, float]
    mean: float
    solved: float
    diverged: int


@dataclass(frozen=True)
class SearchResult:
    """What a search found for an activation: the finalists, best first, and the best value of each round.

    ``rows`` is a sentence on what these numbers are of.
    """

    activation: str
    finalists: tuple[FinalTrial, ...]
    rounds: tuple[float, ...]
    rows: str

    @property
    def setting(self) -> Mapping[str, float]:
        """The winner's hyper-parameters."""
        return self.finalists[0].setting

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        best = self.finalists[0]
        return {
            "activation": self.activation,
            "setting": dict(best.setting),
            "mean": best.mean,
            "solved": best.solved,
            "diverged": best.diverged,
            "best_of_each_round": list(self.rounds),
            "covers": self.rows,
        }


@dataclass(frozen=True)
class SearchSettings:
    """How long a search is and where it runs; see `search`."""

    store: Store
    rounds: int = ROUNDS
    trials: int = TRIALS
    seeds: int = SEEDS
    finalists: int = FINALISTS
    progress: bool | None = None
    checkpoint_every: float = EVERY_SECONDS
    memory: int = MEMORY
    cluster: Cluster | None = None


def search(
    file: StudyFile,
    how: SearchSettings,
    activations: Sequence[str] | None = None,
    profile: str | None = None,
    sets: Sequence[str] = (),
) -> list[SearchResult] | None:
    """The paper's random search for every activation of a study, or those given; None if it was interrupted.

    Settings are chosen by the study's metric on the data's split ``valid``, or on rows held out of ``train`` if it has none.
    The report is in the store's folder, ``report/report.html``, as of a study.
    """
    wanted = [f"sweep.activation={list(activations)!r}"] if activations else []
    planned = plan(file, profile, seeds=1, sets=[*sets, *wanted], memory=how.memory)
    check_memory(planned)
    configs = {run.config.activation: run.config for run in planned.runs}
    if len(configs) < len(planned.runs):
        raise UserError(
            f"a search tunes one size, but {planned.name} has several; choose one, such as --set 'sweep.width=[32]'"
        )
    runs = len(configs) * (how.rounds * how.trials + how.finalists * how.seeds)
    info = ReportInfo(kind="search", title=f"{planned.study.title}: search", command=this_command(), planned=runs)
    info.write(how.store.folder)
    found: list[SearchResult] = []
    for spec, config in configs.items():
        result = _ActivationSearch(planned, spec, config, how).run()
        if result is None:
            break
        found.append(result)
    complete = len(found) == len(configs)
    records = [record for record in how.store.records(history=False) if record.config.study == f"{planned.name}-search"]
    if records:
        said = list(dict.fromkeys(one.rows for one in found))
        info = info.model_copy(update={"paragraphs": said, "planned": len(records) if complete else runs})
        info.write(how.store.folder)
        write_section(search_section(records, info), how.store.folder)
    return found if complete else None


def write_hparams(found: Sequence[SearchResult], study: str, path: Path) -> None:
    """Writes what was found as a file for ``boolit run --hparams``."""
    path.write_text(hparams_to_toml({one.activation: one.setting for one in found}, f"found for {study}"), encoding="utf-8")


class _ActivationSearch:
    def __init__(self, planned: Plan, spec: str, config: RunConfig, how: SearchSettings) -> None:
        self.planned, self.spec, self.how = planned, spec, how
        self.data = for_choosing(planned.study.data)
        metric = planned.study.metric.model_copy(update={"split": "valid"})
        rows = load(self.data)
        known = [*rows.extra_metric_names("valid"), METRIC_OF_TASK[rows.task], "loss"]
        if metric.name not in known:
            raise UserError(f"a search cannot choose by metric.name = {metric.name!r}: the split valid has {', '.join(known)}")
        self.study: Study = planned.study.model_copy(update={"data": self.data, "metric": metric, "keep_weights": False})
        self.config = config.replace(data=RunConfig.options(self.data), metric=metric)
        self.metric = metric.key
        self.sign = 1 if metric.goal == "max" else -1

    def run(self) -> SearchResult | None:
        bounds = Bounds.initial(searched_hparams(self.study.recipe(self.spec)))
        tried: list[Trial] = []
        best: list[float] = []
        for number in range(self.how.rounds):
            trials = self._round(bounds, number)
            if trials is None:
                return None
            tried += trials
            best.append(self.sign * best_first(trials)[0].merit)
            bounds = bounds.tighten(trials)
        finalists = self._final([trial.setting for trial in best_first(tried)[: self.how.finalists]])
        return None if finalists is None else SearchResult(self.spec, tuple(finalists), tuple(best), self._describe_rows())

    def _describe_rows(self) -> str:
        rows = len(load(self.data).splits["valid"])
        whose = "the split valid" if self.data.share is None else f"{self.data.share:.0%} of the training rows, held out"
        return (
            f"Means of {self.study.metric.name} over {self.how.seeds} seeds on {rows} rows ({whose}), which chose the setting: "
            "they say nothing about new rows. No test row and no seed of the study took part."
        )

    def _round(self, bounds: Bounds, number: int) -> list[Trial] | None:
        xs = bounds.draw(self.how.trials, self.planned.name, self.spec, number)
        settings = [bounds.setting(x) for x in xs]
        records = self._train([self._config(own, seed, f"round {number}") for seed, own in enumerate(settings, ROUND_SEEDS)])
        if records is None:
            return None
        return [Trial(x, own, self._merit(record)) for x, own, record in zip(xs, settings, records, strict=True)]

    def _final(self, settings: Sequence[Mapping[str, float]]) -> list[FinalTrial] | None:
        seeds = range(FINAL_SEEDS, FINAL_SEEDS + self.how.seeds)
        records = self._train([self._config(own, seed, "final") for own in settings for seed in seeds])
        if records is None:
            return None
        worst = min((self._merit(record) for record in records if math.isfinite(self._merit(record))), default=0.0)
        groups = [records[i * len(seeds) : (i + 1) * len(seeds)] for i in range(len(settings))]
        finalists = [self._final_trial(own, group, worst) for own, group in zip(settings, groups, strict=True)]
        return sorted(finalists, key=lambda finalist: -self.sign * finalist.mean)

    def _final_trial(self, setting: Mapping[str, float], records: Sequence[Record], worst: float) -> FinalTrial:
        """A diverged run counts as the worst one of all finalists that did not."""
        merits = [self._merit(record) for record in records]
        mean = self.sign * fmean(merit if math.isfinite(merit) else worst for merit in merits)
        solved = fmean(self.study.metric.solves(record.metrics.get(self.metric, math.nan)) for record in records)
        return FinalTrial(setting, mean, solved, sum(record.state == "diverged" for record in records))

    def _config(self, setting: Mapping[str, float], seed: int, stage: str) -> RunConfig:
        return self.config.replace(study=f"{self.planned.name}-search", seed=seed, search=stage, training=setting)

    def _train(self, configs: Sequence[RunConfig]) -> list[Record] | None:
        """The records of some runs in their order, trained now or earlier."""
        how, runs = self.how, [Run(config) for config in configs]
        stage = Plan(self.planned.name, self.study, tuple(cohorts(runs, how.memory)))
        summary = execute(stage, how.store, how.progress, how.checkpoint_every, how.memory, cluster=how.cluster)
        if summary.failed:
            raise UserError(
                f"{summary.failed_message}; a search needs them all: run the same command again when that is mended"
            )
        if not summary.complete:
            return None
        records = {record.key: record for record in how.store.records_of(runs, history=False)}
        return [records[run.key] for run in runs]

    def _merit(self, record: Record) -> float:
        value = record.metrics.get(self.metric, math.nan)
        return self.sign * value if record.state == "finished" and math.isfinite(value) else -math.inf
