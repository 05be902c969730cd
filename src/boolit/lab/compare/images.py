"""A folder of images: which activation is better in a head on a frozen encoder (s:transfer).

At one rate for all, some activations are compared where they diverge and others where they learn too little. So every rate is
tried with a few seeds of its own in half the epochs, and the final runs of each activation have its rate with the lowest loss.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from boolit.lab.common.devices import use_device
from boolit.lab.compare.config import ImageCompareConfig
from boolit.lab.compare.rates import LOSS
from boolit.lab.datasets import Source, load, source
from boolit.lab.datasets.embeddings import weights_identity
from boolit.lab.datasets.images.folder import folder_digest
from boolit.lab.execute import ExecutionSummary, execute
from boolit.lab.reports.page import Report, report_study
from boolit.lab.reports.sections import ReportInfo
from boolit.lab.results.store import Store
from boolit.lab.runs import Record, Run, RunConfig
from boolit.lab.studies import Plan, StudyFile
from boolit.lab.studies import plan as plan_study
from boolit.lab.studies.planner import MEMORY, cohorts

if TYPE_CHECKING:
    from boolit.lab.execute.cluster import Cluster

PROFILE = "transfer"
BATCH, MIN_BATCH, RATE = 128, 16, 0.01
# Steps per epoch. The paper's smallest dataset has 39: 5,000 images in batches of 128. Smaller folders get smaller batches, but
# noisy gradients of very small ones make normalised gates diverge: below 624 images there are fewer steps, and at least 4.
STEPS, MIN_STEPS = 39, 4
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TRIAL_SHARE = 0.5  # of the final epochs
FIRST_TRIAL_SEED, TRIAL_SEEDS = 4_000_000, 2  # no seed of a final run, which begin at 0


@dataclass(frozen=True)
class ImageCompareResult:
    """What a comparison on images found; there are no ``rates`` if it was interrupted before they were chosen.

    ``summary`` says what was trained, ``report`` has the verdict, the tables and the page, ``notes`` what diverged.

    Example:
        >>> from boolit.lab import ExecutionSummary, ImageCompareResult, Report
        >>> stopped = ImageCompareResult(ExecutionSummary(0, 20, 0, 0, 40, 9.5), Report("", (), None, ()))
        >>> stopped.summary.complete, stopped.rates
        (False, None)
    """

    summary: ExecutionSummary
    report: Report
    rates: Mapping[str, float] | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ImageCompareJob:
    """A comparison on images that is ready to run: what was asked for (``config``), and the ``plan`` of its heads.

    Example:
        >>> import os, tempfile, torch
        >>> from unittest.mock import patch
        >>> from PIL import Image
        >>> from boolit.lab import ImageCompareConfig, ImageCompareJob
        >>> from boolit.lab.models.resnet18 import Resnet18
        >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, BOOLIT_DATA=folder):  # features kept there
        ...     torch.save(Resnet18().state_dict(), f"{folder}/weights.pth")  # untrained: leave weights out for the published
        ...     for kind, colour in (("bright", "white"), ("dark", "black")):
        ...         Path(folder, "pictures", kind).mkdir(parents=True)
        ...         for number in range(10):
        ...             Image.new("RGB", (16, 16), colour).save(f"{folder}/pictures/{kind}/{number}.png")
        ...     own = {"size": 32, "views": 1, "weights": Path(folder, "weights.pth"), "rate": 0.01, "epochs": 2}
        ...     config = ImageCompareConfig(Path(folder, "pictures"), ("relu", "or_ail"), seeds=2, **own)
        ...     result = ImageCompareJob.prepare(config).run(Path(folder, "out"), progress=False)
        >>> result.rates, result.summary.trained
        ({'relu': 0.01, 'or_ail': 0.01}, 4)
    """

    config: ImageCompareConfig
    plan: Plan

    @staticmethod
    def prepare(config: ImageCompareConfig) -> ImageCompareJob:
        """Reads the folder, and plans."""
        return ImageCompareJob(config, plan_study(image_study(config), PROFILE))

    def run(
        self,
        out: Path,
        progress: bool | None = None,
        on_rates: Callable[[Mapping[str, float]], None] | None = None,
        device: str | torch.device | None = None,
        cluster: Cluster | None = None,
    ) -> ImageCompareResult:
        """Encodes and trains what is not in the folder yet, and writes the report there.

        ``on_rates`` is called with the chosen rates; ``device`` and ``cluster`` as for `execute`.
        """
        with Store(out) as store, use_device(device):
            trials: Plan | None = None
            if self.config.rate is not None:
                before, rates = None, dict.fromkeys(self.config.activations, self.config.rate)
            else:
                trials = trial_plan(self.plan)
                self._describe(trials, self.plan).write(out)
                before = execute(trials, store, progress, cluster=cluster)
                if not before.complete:
                    return ImageCompareResult(before, report_study(self.plan, store, kind="transfer"))
                rates = choose_rates(store.records_of(trials.runs, history=False))
                if on_rates is not None:
                    on_rates(rates)
            final = final_plan(self.plan, rates)
            self._describe(trials, final).write(out)
            summary = execute(final, store, progress, cluster=cluster)
            note = divergence_note(store.records_of(final.runs, history=False), final.study.training.batch)
            report = report_study(final, store, kind="transfer")
            return ImageCompareResult(before.add(summary) if before else summary, report, rates, [note] if note else [])

    def _describe(self, trials: Plan | None, final: Plan) -> ReportInfo:
        """What the report is of, the trials of rates included."""
        cohorts = (*(trials.cohorts if trials else ()), *final.cohorts)
        return ReportInfo.of_plan("transfer", Plan(self.plan.name, self.plan.study, cohorts, PROFILE))


def image_study(config: ImageCompareConfig) -> StudyFile:
    """The study: the paper's heads and recipe, in batches that suit the number of images."""
    config.validate()
    images, data = _sources(config)
    own = {"learning_rate": config.rate, "batch": config.batch, "epochs": config.epochs}
    given = {name: value for name, value in own.items() if value is not None}
    tables: dict[str, Any] = {
        "title": f"Heads on a frozen ResNet-18 for the pictures of {config.folder.resolve().name}",
        "data": data.model_dump(mode="json"),
        "model": {"name": "head", "sizes": "matched"},
        "sweep": {
            "activation": list(config.activations),
            "width": [512],
            "depth": [2],
            "rounding": "nearest",
            "seeds": config.seeds,
        },
        "training": recipe_for(len(load(images).splits["train"])) | given,
        "metric": {"name": "accuracy"},
        "profiles": {PROFILE: {}},
    }
    return StudyFile(config.name, config.folder, "", tables)


def _sources(config: ImageCompareConfig) -> tuple[Source, Source]:
    """The images and their features; problems with folder or weights are found first, so that the errors are plain."""
    weights = None if config.weights is None else str(config.weights)
    origin, digest = weights_identity(weights)
    images = source({"name": "pictures", "path": str(config.folder), "digest": folder_digest(config.folder)})
    options = {"of": images, "views": config.views, "size": config.size, "weights": weights}
    return images, source({"name": "embeddings", "origin": origin, "digest": digest, **options})


def recipe_for(samples: int) -> dict[str, Any]:
    """The paper's recipe, with smaller batches for fewer than 5,000 images.

    Example:
        >>> [recipe_for(samples)["batch"] for samples in (20, 210, 1000, 50_000)]
        [5, 16, 25, 128]
    """
    suited = min(BATCH, max(MIN_BATCH, samples // STEPS))
    return {
        "optimiser": "sgd",
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "learning_rate": RATE,
        "schedule": "cosine",
        "epochs": ImageCompareConfig.epochs,
        "prelude": 1,
        "batch": max(1, min(suited, samples // MIN_STEPS)),
    }


def trial_plan(planned: Plan, rates: Sequence[float] = RATES) -> Plan:
    """The runs that try every rate for every activation of a plan; they never read a test image."""
    configs = {run.config.activation: run.config for run in planned.runs}.values()
    trials = [
        config.replace(
            study=f"{planned.name}-rates",
            search="rates",
            trial=True,
            seed=seed,
            training={"epochs": _trial_epochs(config), "learning_rate": rate},
        )
        for config in configs
        for rate in rates
        for seed in range(FIRST_TRIAL_SEED, FIRST_TRIAL_SEED + TRIAL_SEEDS)
    ]
    return Plan(planned.name, planned.study, tuple(cohorts([Run(config) for config in trials], MEMORY)))


def final_plan(planned: Plan, rates: Mapping[str, float]) -> Plan:
    """A plan with every activation's runs at its own rate."""
    runs = [Run(run.config.replace(training={"learning_rate": rates[run.config.activation]})) for run in planned.runs]
    return Plan(planned.name, planned.study, tuple(cohorts(runs, MEMORY)))


def choose_rates(trials: Iterable[Record]) -> dict[str, float]:
    """Of every activation, the rate with the lowest mean loss; one at which a trial diverged comes last.

    Of equal losses, and where all diverged, the lowest rate.
    """
    losses: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in trials:
        loss = record.metrics.get(LOSS, math.nan)
        finite = record.state == "finished" and math.isfinite(loss)
        losses[record.config.activation][_rate(record)].append(loss if finite else math.inf)
    return {spec: min(sorted(own), key=lambda rate: fmean(own[rate])) for spec, own in losses.items()}


def divergence_note(finals: Iterable[Record], batch: int) -> str | None:
    """Which activations diverged, at which rate, and what to do about it."""
    diverged = [record for record in finals if record.state == "diverged"]
    if not diverged:
        return None
    counts = Counter((record.config.activation, _rate(record)) for record in diverged)
    told = ", ".join(f"{spec} in {count} of its runs (rate {rate:g})" for (spec, rate), count in counts.items())
    lower = min(rate for _, rate in counts) / 3
    return f"Diverged: {told}. A lower rate or larger batches are steadier: --rate {lower:.1g} or --batch {2 * batch}"


def _trial_epochs(config: RunConfig) -> int:
    epochs: int = config.training["epochs"]
    least: int = config.training.get("prelude", 0) + 1
    return min(epochs, max(least, math.ceil(TRIAL_SHARE * epochs)))


def _rate(record: Record) -> float:
    rate: float = record.config.training["learning_rate"]
    return rate
