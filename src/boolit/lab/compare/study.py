"""The study behind a comparison on a table: equal networks for every activation, stopped early."""

from __future__ import annotations

from typing import Any

from boolit.errors import UserError
from boolit.lab.compare.config import CompareConfig
from boolit.lab.datasets import Source, source
from boolit.lab.datasets.tables import PreparedTable, table_digest
from boolit.lab.datasets.tables.dataset import TableSource, network_task
from boolit.lab.models import family
from boolit.lab.studies import StudyFile
from boolit.lab.studies.planner import BUDGET_TOLERANCE
from boolit.lab.training.metrics import METRIC_OF_TASK
from boolit.nn import activation

PROFILE = "compare"
MIN_BUDGET, BUDGET_PER_FEATURE = 10_000, 50
SAMPLES_SEEN, MAX_EPOCHS, MIN_EPOCHS = 3_000_000, 100, 8
MIN_BATCH, MAX_BATCH = 16, 512
PATIENCE_SHARE, MIN_PATIENCE = 0.15, 5
WEIGHT_DECAY = 1e-4
MODEL = {"name": "mlp", "normalisation": "batch"}


def table_source(config: CompareConfig) -> TableSource:
    """The table as a dataset; its file is hashed."""
    options = {name: getattr(config, name) for name in ("target", "task", "test", "validation", "levels", "drop")}
    table = source({"name": "table", "path": str(config.table), "digest": table_digest(config.table), **options})
    assert isinstance(table, TableSource)
    return table


def compare_study(config: CompareConfig, data: Source, table: PreparedTable) -> StudyFile:
    """The study: a batch-normalised multi-layer perceptron of equal size for every activation, stopped early."""
    budget = config.budget or max(MIN_BUDGET, BUDGET_PER_FEATURE * table.features)
    _check_budget(config, table, budget)
    tables: dict[str, Any] = {
        "title": f"{config.target} of {config.table.name}",
        "keep_weights": True,
        "data": data.model_dump(mode="json"),
        "model": MODEL,
        "sweep": {"activation": list(config.activations), "params": [budget], "depth": [config.layers], "seeds": 1},
        "training": recipe_for(table.rows["train"], config.epochs),
        "metric": {"name": METRIC_OF_TASK[network_task(table)]},
        "profiles": {PROFILE: {}},
    }
    return StudyFile(config.name, config.table, "", tables)


def recipe_for(rows: int, epochs: int | None = None) -> dict[str, Any]:
    """How networks are trained on this many rows: batches of about the root of their number, a bounded number of rows seen.

    The learning rate follows half a cosine down to 0, so that an early stop is not mistaken for the rise of a cycle.

    Example:
        >>> {rows: [recipe_for(rows)[name] for name in ("batch", "epochs", "patience")] for rows in (100, 10_000, 320_000)}
        {100: [16, 100, 15], 10000: [128, 100, 15], 320000: [512, 9, 5]}
    """
    epochs = epochs or min(MAX_EPOCHS, max(MIN_EPOCHS, round(SAMPLES_SEEN / rows)))
    batch = min(MAX_BATCH, max(MIN_BATCH, 1 << round(rows**0.5).bit_length()))
    return {
        "optimiser": "adamw",
        "schedule": "cosine",
        "weight_decay": WEIGHT_DECAY,
        "epochs": epochs,
        "batch": batch,
        "patience": max(MIN_PATIENCE, round(PATIENCE_SHARE * epochs)),
    }


def _check_budget(config: CompareConfig, table: PreparedTable, budget: int) -> None:
    """The planner would refuse as well, but in the words of a study."""
    network = family(MODEL)
    ends = ((table.features,), len(table.classes) if len(table.classes) > 2 else 1)
    for spec in config.activations:
        module = activation(spec)
        widths = network.widths_for_budget(budget, config.layers, *ends, module)
        count = network.parameters(*ends, widths, module)
        if abs(count - budget) > BUDGET_TOLERANCE * budget:
            raise UserError(
                f"--budget {budget} is too small: the nearest network with {spec} has {count} parameters; ask for more"
            )
