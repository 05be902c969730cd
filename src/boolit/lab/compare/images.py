"""A folder of images: which activation is better in a head on a frozen encoder (s:transfer).

At one rate for all, some activations are compared where they diverge and others where they learn too little. So every rate is
tried with a few seeds of its own in half the epochs, and the finals take, for each activation, the rate with the lowest loss.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from boolit.lab.common.errors import UserError
from boolit.lab.compare.config import check_activations
from boolit.lab.compare.rates import LOSS
from boolit.lab.datasets import Source, load, source
from boolit.lab.datasets.features.embeddings import weights_identity
from boolit.lab.datasets.images.folder import folder_digest
from boolit.lab.runs import Record, Run, RunConfig
from boolit.lab.studies import Plan, StudyFile
from boolit.lab.studies.planner import MEMORY, cohorts

# A folder of pictures: which activation is better in a head on a frozen encoder (s:transfer).

DEFAULT_HEADS = ("identity", "relu", "prelu", "max", "or_ail", "xnor_nil", "xnor_nail", "or_and_xnor_nail_d")
PROFILE = "transfer"
BATCH, LEAST_BATCH, EPOCHS, RATE = 128, 16, 25, 0.01
# Of an epoch of the paper's smallest dataset, 5,000 pictures in batches of 128: smaller folders get smaller batches, but noisy
# gradients of very small ones make normalised gates diverge, so it is fewer steps below 624 pictures, and 4 at least.
STEPS, LEAST_STEPS = 39, 4


@dataclass(frozen=True)
class PictureQuestion:
    """A folder with a folder of pictures for each class, the activations to compare, and how pictures are looked at.

    ``rate`` is found for each activation on the validation pictures unless given, ``batch`` follows from their number.
    """

    folder: Path
    activations: tuple[str, ...] = DEFAULT_HEADS
    seeds: int = 5
    size: int = 224
    views: int = 5
    weights: Path | None = None
    rate: float | None = None
    batch: int | None = None
    epochs: int = EPOCHS

    @property
    def name(self) -> str:
        """What the study is called: the folder's name in letters a file can have."""
        return re.sub(r"[^0-9A-Za-z_-]+", "-", self.folder.resolve().name).strip("-") or "pictures"

    def study(self) -> StudyFile:
        """The study that answers it: the paper's heads and recipe, in batches that suit the number of pictures."""
        check_activations(self.activations)
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise UserError(f"--rate {self.rate} is no learning rate; it must be above 0 and finite, such as 0.003")
        pictures, data = self._data()
        samples = len(load(pictures).splits["train"])
        tables: dict[str, Any] = {
            "title": f"Heads on a frozen ResNet-18 for the pictures of {self.folder.resolve().name}",
            "data": data.model_dump(mode="json"),
            "model": {"name": "head", "sizes": "matched"},
            "sweep": {
                "activation": list(self.activations),
                "width": [512],
                "depth": [2],
                "rounding": "nearest",
                "seeds": self.seeds,
            },
            "training": self._recipe(samples),
            "metric": {"name": "accuracy"},
            "profiles": {PROFILE: {}},
        }
        return StudyFile(self.name, self.folder, "", tables)

    def _recipe(self, samples: int) -> dict[str, Any]:
        own = {"learning_rate": self.rate, "batch": self.batch, "epochs": self.epochs}
        return recipe_for(samples) | {name: value for name, value in own.items() if value is not None}

    def _data(self) -> tuple[Source, Source]:
        """The pictures and their features; what is wrong with folder or weights is found first, to be told in plain words."""
        weights = None if self.weights is None else str(self.weights)
        origin, digest = weights_identity(weights)
        pictures = source({"name": "pictures", "path": str(self.folder), "digest": folder_digest(self.folder)})
        options = {"of": pictures, "views": self.views, "size": self.size, "weights": weights}
        return pictures, source({"name": "embeddings", "origin": origin, "digest": digest, **options})


def recipe_for(samples: int) -> dict[str, Any]:
    """The paper's recipe, with smaller batches for fewer than 5,000 pictures.

    Example:
        >>> [recipe_for(samples)["batch"] for samples in (20, 210, 1000, 50_000)]
        [5, 16, 25, 128]
    """
    suited = min(BATCH, max(LEAST_BATCH, samples // STEPS))
    return {
        "optimiser": "sgd",
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "learning_rate": RATE,
        "schedule": "cosine",
        "epochs": EPOCHS,
        "prelude": 1,
        "batch": max(1, min(suited, samples // LEAST_STEPS)),
    }


# A learning rate for every activation's heads, by their loss on the pictures for validation.

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TRIAL_SHARE = 0.5  # of the final epochs
FIRST_TRIAL_SEED, TRIAL_SEEDS = 4_000_000, 2  # no seed of a final, which begin at 0


def trial_plan(planned: Plan, rates: Sequence[float] = RATES) -> Plan:
    """The runs that try every rate for every activation of a plan; they never read a test picture."""
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


def chosen_rates(trials: Iterable[Record]) -> dict[str, float]:
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
