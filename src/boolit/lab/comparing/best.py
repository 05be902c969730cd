"""The model a comparison saves, for use: chosen by validation rows of one split, described by what that choice is worth."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from boolit._version import __version__
from boolit.lab.comparing.outcomes import Outcomes
from boolit.lab.data import Resample
from boolit.lab.results.notation import p_text
from boolit.lab.results.resampled import Estimate
from boolit.lab.results.split_verdict import SplitVerdict
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.tables import Prepared
from boolit.nn import Activation
from boolit.saved.description import Description
from boolit.saved.model import SavedModel
from boolit.saved.network import InUnit, Standardise, network

FILE = "best.safetensors"


@dataclass(frozen=True)
class Saved:
    """The model that was saved: where, whose, why, and what it is expected to score on new rows, in the target's own unit."""

    path: Path
    activation: str
    split: int
    learning_rate: float
    metric: str
    expected: Estimate
    reason: str


def write_saved(outcomes: Outcomes, verdict: SplitVerdict, table: Prepared, resample: Resample, store: Store) -> Saved | None:
    """Writes the model of the first split into the store's folder; None if every run there diverged.

    ``resample`` is that split.
    """
    number = outcomes.numbers[0]
    spec = outcomes.chosen(number)
    if spec is None:
        return None
    record = outcomes.records[spec, number]
    rate = float(record.metrics["learning_rate"])
    saved = Saved(
        store.folder / FILE,
        spec,
        number,
        rate,
        outcomes.metric.name,
        outcomes.expected(),
        _reason(spec, number, outcomes, verdict),
    )
    about = {
        "chosen": saved.reason,
        "metric": saved.metric,
        "expected": asdict(saved.expected),
        "figures": figures(record),
    }
    saved_model(record, table, resample, load_file(store.weights(record.key)), about).save(saved.path)
    return saved


def _reason(spec: str, number: int, outcomes: Outcomes, verdict: SplitVerdict) -> str:
    said = (
        f"{spec} has the lowest validation loss on split {number}, whose network is saved. Its expected score is that of the "
        f"same choice made on each of the {len(outcomes.numbers)} splits by its validation rows, measured on its test rows."
    )
    if spec == verdict.leader:
        return said
    pair = verdict.comparison.pair(verdict.leader, spec)
    if verdict.comparison.better(verdict.leader, spec):
        why = f"on other splits {verdict.leader} is better ({p_text(pair.p_holm)}), so consider --activations {verdict.leader}"
    else:
        why = f"the difference between the two is not significant ({p_text(pair.p_holm)})"
    return f"{said} The table's {verdict.first} mean is {verdict.leader}'s: test rows choose no model, and {why}."


def saved_model(
    record: Record, table: Prepared, resample: Resample, weights: Mapping[str, Tensor], about: Mapping[str, Any] | None = None
) -> SavedModel:
    """The network of a run with everything it needs to read other rows of such a table."""
    config: Mapping[str, Any] = record.config
    regress = table.task == "regress"
    about = {
        "split": config["split"],
        "seed": config["seed"],
        "parameters": config["parameters"],
        "learning_rate": config["training"]["learning_rate"],
        **(about or {}),
        "table": config["data"]["digest"],
        "rows": dict(table.rows),
        "versions": {"boolit": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
    }
    spec, widths = str(config["activation"]), tuple(config["width"])
    description = Description(table.columns, table.target, table.task, table.classes, spec, widths, about)
    module = network(table.features, widths, description.outputs, spec, in_unit=regress)
    _fill(module, table, resample, weights)
    return SavedModel(module.eval(), description)


def figures(record: Record) -> dict[str, float]:
    """A run's figures on the rows it did not learn from."""
    return {name: value for name, value in sorted(record.metrics.items()) if name.startswith(("valid_", "test_"))}


def _fill(module: nn.Sequential, table: Prepared, resample: Resample, weights: Mapping[str, Tensor]) -> None:
    """Copies the weights of a stacked network, whose layers are in lists by kind, into a plain one."""
    numbers = {nn.Linear: "linear", nn.BatchNorm1d: "norm", Activation: "activation"}
    seen = dict.fromkeys(numbers.values(), 0)
    # Stored features are standardised once and a run's own moments are of those: both together are one mean and one scale.
    stored_mean, stored_scale = (torch.from_numpy(np.array(values)) for values in (table.mean, table.scale))
    for layer in module:
        kind = next((name for type_, name in numbers.items() if isinstance(layer, type_)), None)
        if kind is not None:
            _copy(layer, weights, f"{kind}.{seen[kind]}")
            seen[kind] += 1
        elif isinstance(layer, Standardise):
            layer.mean.copy_(stored_mean + stored_scale * resample.mean.double())
            layer.scale.copy_(stored_scale * resample.scale.double())
        elif isinstance(layer, InUnit):
            layer.mean.fill_(table.target_mean + table.target_scale * resample.target_mean)
            layer.scale.fill_(table.target_scale * resample.target_scale)


def _copy(layer: nn.Module, weights: Mapping[str, Tensor], prefix: str) -> None:
    for name, own in layer.state_dict().items():
        if name == "num_batches_tracked":
            continue  # counts batches where the momentum is none, which it never is here
        learnt = isinstance(layer, Activation)
        own.copy_(weights[f"{prefix}.learnt.{name.replace('.', '_')}" if learnt else f"{prefix}.{name}"])
