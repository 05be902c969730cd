"""The best model of a comparison, for use: chosen on validation rows alone, so that its test figure stays honest."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from boolit._version import __version__
from boolit.lab.results.statistics import Metric
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.tables import Prepared
from boolit.nn import Activation
from boolit.saved.description import Description
from boolit.saved.model import SavedModel
from boolit.saved.network import InUnit, Standardise, network

FILE = "best.safetensors"


def best_record(records: Sequence[Record], metric: Metric) -> Record | None:
    """The best seed of the activation with the best mean, both on the validation rows; None if no run finished."""
    name = validation_metric(metric)
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.state == "finished":
            groups[str(record.config["activation"])].append(record)
    if not groups:
        return None

    def merit(record: Record) -> float:
        return metric.merit(record.metrics[name])

    return max(max(groups.values(), key=lambda group: fmean(map(merit, group))), key=merit)


def validation_metric(metric: Metric) -> str:
    """The name of the same figure on the validation rows."""
    return metric.name.replace("test_", "valid_", 1)


def saved_model(record: Record, table: Prepared, weights: Mapping[str, Tensor]) -> SavedModel:
    """The network of a run with everything it needs to read other rows of such a table."""
    config: Mapping[str, Any] = record.config
    regress = table.task == "regress"
    about = {
        "seed": config["seed"],
        "parameters": config["parameters"],
        "learning_rate": config["training"]["learning_rate"],
        "figures": figures(record),
        "table": config["data"]["digest"],
        "rows": dict(table.rows),
        "versions": {"boolit": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
    }
    spec, widths = str(config["activation"]), tuple(config["width"])
    description = Description(table.columns, table.target, table.task, table.classes, spec, widths, about)
    module = network(table.features, widths, description.outputs, spec, in_unit=regress)
    _fill(module, table, weights)
    return SavedModel(module.eval(), description)


def figures(record: Record) -> dict[str, float]:
    """A run's figures on the rows it did not learn from."""
    return {name: value for name, value in sorted(record.metrics.items()) if name.startswith(("valid_", "test_"))}


def write_best(record: Record, table: Prepared, store: Store) -> Path:
    """Writes a run's model into the store's folder."""
    path = store.folder / FILE
    saved_model(record, table, load_file(store.weights(record.key))).save(path)
    return path


def _fill(module: nn.Sequential, table: Prepared, weights: Mapping[str, Tensor]) -> None:
    """Copies the weights of a stacked network, whose layers are in lists by kind, into a plain one."""
    numbers = {nn.Linear: "linear", nn.BatchNorm1d: "norm", Activation: "activation"}
    seen = dict.fromkeys(numbers.values(), 0)
    for layer in module:
        kind = next((name for type_, name in numbers.items() if isinstance(layer, type_)), None)
        if kind is not None:
            _copy(layer, weights, f"{kind}.{seen[kind]}")
            seen[kind] += 1
        elif isinstance(layer, Standardise):
            layer.mean.copy_(torch.from_numpy(np.array(table.mean)))
            layer.scale.copy_(torch.from_numpy(np.array(table.scale)))
        elif isinstance(layer, InUnit):
            layer.mean.fill_(table.target_mean)
            layer.scale.fill_(table.target_scale)


def _copy(layer: nn.Module, weights: Mapping[str, Tensor], prefix: str) -> None:
    for name, own in layer.state_dict().items():
        if name == "num_batches_tracked":
            continue  # counts batches where the momentum is none, which it never is here
        learnt = isinstance(layer, Activation)
        own.copy_(weights[f"{prefix}.learnt.{name.replace('.', '_')}" if learnt else f"{prefix}.{name}"])
