"""What is asked of a table, and the study that answers it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import boolit
from boolit.lab.common.errors import UserError, user_input
from boolit.lab.datasets import source
from boolit.lab.datasets.tables import Prepared, digest_of, prepared
from boolit.lab.datasets.tables.dataset import Table, network_task
from boolit.lab.models import family
from boolit.lab.studies import StudyFile
from boolit.lab.studies.planner import BUDGET_TOLERANCE
from boolit.lab.training.metrics import METRIC_OF_TASK
from boolit.saved.file import TableTask

DEFAULT_ACTIVATIONS = ("relu", "silu", "max", "or_ail", "xnor_nail", "or_and_xnor_nail_d")
DEFAULT_REFERENCE = "relu"
PROFILE = "compare"

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
SPLITS, SPLITS_OF_MANY_ROWS, LEAST_SPLITS = 10, 5, 5
MANY_ROWS = 20_000  # from so many on, splits differ little, and half of them will do

LEAST_BUDGET, BUDGET_PER_FEATURE = 10_000, 50
SAMPLES_SEEN, MOST_EPOCHS, LEAST_EPOCHS = 3_000_000, 100, 8
LEAST_BATCH, MOST_BATCH = 16, 512
PATIENCE_SHARE, LEAST_PATIENCE = 0.15, 5
WEIGHT_DECAY = 1e-4
MODEL = {"name": "mlp", "normalisation": "batch"}


@dataclass(frozen=True)
class Question:
    """A table and its target, the activations to compare, and how large and how often.

    ``splits`` is how often the rows are split anew, 10 unless given, or 5 from 20,000 rows on. ``reference`` is the activation
    the others are tested against first of all: relu if it is among them, the first one otherwise, unless given.

    ``budget`` is how many parameters every network has, about 10,000 unless given, or 50 a feature if that is more. ``epochs``
    is the most there are: enough to see three million rows, but 8 at least and 100 at most, unless given. ``minutes`` is how
    long it may take, about: splits, rates and epochs that are not given are then reduced.
    """

    table: Path
    target: str
    task: TableTask | None = None
    activations: tuple[str, ...] = DEFAULT_ACTIVATIONS
    budget: int | None = None
    layers: int = 2
    splits: int | None = None
    test: float = 0.2
    validation: float = 0.2
    levels: int = 20
    drop: tuple[str, ...] = ()
    epochs: int | None = None
    reference: str | None = None
    rates: tuple[float, ...] = RATES
    minutes: float | None = None

    @property
    def name(self) -> str:
        """What the study is called: the table's name in letters a file can have."""
        stem = self.table.name.partition(".")[0]
        return re.sub(r"[^0-9A-Za-z_-]+", "-", stem).strip("-") or "table"

    @cached_property
    def source(self) -> Table:
        """The table as a dataset; it is hashed once."""
        options = {name: getattr(self, name) for name in ("target", "task", "test", "validation", "levels", "drop")}
        made = source({"name": "table", "path": str(self.table), "digest": digest_of(self.table), **options})
        assert isinstance(made, Table)
        return made

    def prepared(self, shown: bool | None = None) -> Prepared:
        """The table as networks read it, read now or earlier."""
        return prepared(self.source.wanted, shown)

    def checked(self) -> Question:
        """This question, if its activations exist and each is there once, and the rest is possible."""
        check_activations(self.activations)
        if self.reference is not None and self.reference not in self.activations:
            known = ", ".join(self.activations)
            raise UserError(f"the reference {self.reference!r} is not among the activations {known}; choose one of them")
        if self.splits is not None and self.splits < LEAST_SPLITS:
            raise UserError(f"--splits {self.splits} is too few to tell noise from a difference; at least {LEAST_SPLITS}")
        for place, rate in enumerate(self.rates):
            if not 0 < rate < math.inf or rate in self.rates[:place]:
                raise UserError(f"the learning rate {rate:g} is not above 0 and finite, or is there twice; change --rates")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"--minutes {self.minutes:g} is no time to plan by; give a number above 0")
        if not self.rates:
            raise UserError("there are no learning rates to try; give some, such as --rates 0.003,0.01,0.03")
        return self

    @property
    def compared_with(self) -> str:
        """The activation the others are compared with."""
        return self.reference or (DEFAULT_REFERENCE if DEFAULT_REFERENCE in self.activations else self.activations[0])

    def split_numbers(self, rows: int) -> range:
        """The numbers of the splits of so many rows."""
        return range(1, 1 + (self.splits or (SPLITS_OF_MANY_ROWS if rows >= MANY_ROWS else SPLITS)))


def check_activations(specs: Sequence[str]) -> None:
    """Refuses activations that do not exist, or are there twice, or none at all."""
    for place, spec in enumerate(specs):
        with user_input():
            boolit.activation(spec)
        if spec in specs[:place]:
            raise UserError(f"the activation {spec!r} is there twice; name each once")
    if not specs:
        raise UserError("there are no activations to compare; name some, such as relu,or_ail")


def study_of(question: Question, table: Prepared) -> StudyFile:
    """The study: a batch-normalised multi-layer perceptron of equal size for every activation, stopped early."""
    budget = question.budget or max(LEAST_BUDGET, BUDGET_PER_FEATURE * table.features)
    _check_budget(question, table, budget)
    tables: dict[str, Any] = {
        "title": f"{question.target} of {question.table.name}",
        "keep_weights": True,
        "data": question.source.model_dump(mode="json"),
        "model": MODEL,
        "sweep": {
            "activation": list(question.activations),
            "params": [budget],
            "depth": [question.layers],
            "seeds": 1,
        },
        "training": recipe_for(table.rows["train"], question.epochs),
        "metric": {"name": METRIC_OF_TASK[network_task(table)]},
        "profiles": {PROFILE: {}},
    }
    return StudyFile(question.name, question.table, "", tables)


def recipe_for(rows: int, epochs: int | None = None) -> dict[str, Any]:
    """How networks are trained on so many rows: batches of about the root of their number, and a bounded number of rows seen.

    The learning rate falls along a cosine, so that an early stop is not mistaken for the rise of a cycle.

    Example:
        >>> {rows: [recipe_for(rows)[name] for name in ("batch", "epochs", "patience")] for rows in (100, 10_000, 320_000)}
        {100: [16, 100, 15], 10000: [128, 100, 15], 320000: [512, 9, 5]}
    """
    epochs = epochs or min(MOST_EPOCHS, max(LEAST_EPOCHS, round(SAMPLES_SEEN / rows)))
    batch = min(MOST_BATCH, max(LEAST_BATCH, 1 << round(rows**0.5).bit_length()))
    return {
        "optimiser": "adamw",
        "schedule": "cosine",
        "weight_decay": WEIGHT_DECAY,
        "epochs": epochs,
        "batch": batch,
        "patience": max(LEAST_PATIENCE, round(PATIENCE_SHARE * epochs)),
    }


def _check_budget(question: Question, table: Prepared, budget: int) -> None:
    """The planner would refuse too, but in the words of a study."""
    network = family(MODEL)
    ends = ((table.features,), len(table.classes) if len(table.classes) > 2 else 1)
    for spec in question.activations:
        activation = boolit.activation(spec)
        widths = network.fitted(budget, question.layers, *ends, activation)
        count = network.parameters(*ends, widths, activation)
        if abs(count - budget) > BUDGET_TOLERANCE * budget:
            raise UserError(
                f"--budget {budget} is too small: the nearest network with {spec} has {count} parameters; ask for more"
            )
