"""The model a comparison saves: chosen by validation rows, and its predictions for every row of a table."""

from __future__ import annotations

import csv
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from boolit import __version__
from boolit.errors import UserError, user_input
from boolit.lab.common.files import atomic_write, csv_cell
from boolit.lab.common.progress import Advance, count_progress
from boolit.lab.compare.rates import activation_split
from boolit.lab.datasets import Dataset, Resample
from boolit.lab.datasets.tables import PreparedTable, open_table
from boolit.lab.datasets.tables.profile import clean_column, parse_numbers
from boolit.lab.results.names import paper_name
from boolit.lab.results.resampled import Estimate
from boolit.lab.results.scores import describe_p
from boolit.lab.results.store import Store
from boolit.lab.results.verdicts import SplitVerdict
from boolit.lab.runs import Record
from boolit.nn import Activation
from boolit.nn.mlp import Standardise, Unstandardise
from boolit.saved import load
from boolit.saved.columns import Column, Kind, is_missing
from boolit.saved.file import ModelDescription, build_network
from boolit.saved.model import SavedModel

FILE = "best.safetensors"


@dataclass(frozen=True)
class BestModel:
    """The model that was saved: where, whose, why, and what it is expected to score on new rows, in the target's own unit."""

    path: Path
    activation: str
    split: int
    learning_rate: float
    metric: str
    expected: Estimate
    reason: str

    def describe(self, verdict: SplitVerdict) -> str:
        """The model in a sentence."""
        metric, found, fmt = verdict.comparison.metric.name.replace("rmse", "RMSE"), self.expected, verdict.score_format
        low, high = (max(0.0, found.low), min(1.0, found.high)) if fmt.percent else (found.low, found.high)
        mean, ends = fmt.number(found.mean), f"[{fmt.number(low)}, {fmt.number(high)}]{fmt.unit}"
        return f"Saved: {paper_name(self.activation)}, expected {metric} on new rows: {mean} {ends}. {self.reason}"


def save_best_model(
    record: Record, verdict: SplitVerdict, expected: Estimate, table: PreparedTable, dataset: Dataset, store: Store
) -> BestModel:
    """Writes the network of a run, which its split's validation rows chose, into the store's folder.

    ``expected`` is what that way of choosing scores on new rows.
    """
    assert dataset.resample is not None
    spec, number = activation_split(record)
    metric, rate = verdict.comparison.metric.key, float(record.metrics["learning_rate"])
    saved = BestModel(store.folder / FILE, spec, number, rate, metric, expected, _reason(spec, number, verdict))
    metrics = {name: value for name, value in sorted(record.metrics.items()) if name.startswith(("valid_", "test_"))}
    about = {"chosen": saved.reason, "metric": metric, "expected": asdict(expected), "figures": metrics}
    weights = load_file(store.weights(record.key))
    build_saved_model(record, table, dataset.resample(number), weights, about).save(saved.path)
    return saved


def _reason(spec: str, number: int, verdict: SplitVerdict) -> str:
    said = (
        f"{paper_name(spec)} has the lowest validation loss on split {number}, whose network is saved. Its expected score is "
        f"that of the same choice made on each of the {verdict.comparison.splits.number} splits by its validation rows, "
        "measured on its test rows."
    )
    if spec == verdict.leader:
        return said
    leader, p = verdict.leader, describe_p(verdict.comparison.pair(verdict.leader, spec).p_holm)
    if verdict.comparison.is_better(leader, spec):
        why = f"on other splits {paper_name(leader)} is better ({p}), so consider --activations {leader}"
    else:
        why = f"the difference between the two is not significant ({p})"
    return f"{said} The table's {verdict.extreme} mean is {paper_name(leader)}'s: test rows choose no model, and {why}."


def build_saved_model(
    record: Record,
    table: PreparedTable,
    resample: Resample,
    weights: Mapping[str, Tensor],
    about: Mapping[str, Any] | None = None,
) -> SavedModel:
    """The network of a run with everything it needs to read other rows of such a table."""
    config = record.config
    regress = table.task == "regress"
    about = {
        "split": config.split,
        "seed": config.seed,
        "parameters": config.parameters,
        "learning_rate": config.training["learning_rate"],
        **(about or {}),
        "table": config.data["digest"],
        "rows": dict(table.rows),
        "versions": {"boolit": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
    }
    spec, widths = config.activation, tuple(config.width)
    description = ModelDescription(table.columns, table.target, table.task, table.classes, spec, widths, about)
    module = build_network(table.features, widths, description.outputs, spec, in_unit=regress)
    _fill(module, table, resample, weights)
    return SavedModel(module.eval(), description)


def _fill(module: nn.Sequential, table: PreparedTable, resample: Resample, weights: Mapping[str, Tensor]) -> None:
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
        elif isinstance(layer, Unstandardise):
            layer.mean.fill_(table.target_mean + table.target_scale * resample.target_mean)
            layer.scale.fill_(table.target_scale * resample.target_scale)


def _copy(layer: nn.Module, weights: Mapping[str, Tensor], prefix: str) -> None:
    for name, own in layer.state_dict().items():
        if name == "num_batches_tracked":
            continue  # counts batches where the momentum is none, which it never is here
        learnt = isinstance(layer, Activation)
        own.copy_(weights[f"{prefix}.learnt.{name.replace('.', '_')}" if learnt else f"{prefix}.{name}"])


SHOWN_TEXTS, TEXT_LENGTH = 5, 40  # of a column's unknown categories, to name a few


@dataclass
class UnknownCategories:
    """Rows of a column whose text is no category that the model knows, and the first few of these texts."""

    rows: int = 0
    texts: list[str] = field(default_factory=list)
    more: bool = False

    def add(self, column: Column, values: pa.Array) -> None:
        """Looks through further rows."""
        counts = pc.value_counts(clean_column(values))
        for value, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
            text = str(value).strip()
            if is_missing(value) or text in column.levels:
                continue
            self.rows += count
            if text[:TEXT_LENGTH] not in self.texts:
                self.more |= len(self.texts) == SHOWN_TEXTS
                self.texts += [text[:TEXT_LENGTH]] * (not self.more)

    def note(self, name: str) -> str:
        """A sentence for the user."""
        rows = f"{self.rows} row{'s' if self.rows > 1 else ''}"
        texts = ", ".join(map(repr, self.texts)) + ", …" * self.more
        return f"column {name!r}: {rows} with a category that the model does not know, predicted all the same: {texts}"


@dataclass
class PredictionSummary:
    """How many rows were predicted, and what of each column of categories the model does not know."""

    rows: int = 0
    unknown: dict[str, UnknownCategories] = field(default_factory=dict)

    def add(self, columns: Sequence[Column], piece: pa.RecordBatch) -> None:
        """Looks through further rows."""
        self.rows += piece.num_rows
        for column, values in zip(columns, piece.columns, strict=True):
            if column.kind == "category":
                self.unknown.setdefault(column.name, UnknownCategories()).add(column, values)

    def notes(self) -> list[str]:
        """A sentence for each column with such rows."""
        return [found.note(name) for name, found in self.unknown.items() if found.rows]


def write_predictions(model: Path, table: Path, to: Path | TextIO, shown: bool | None = None) -> PredictionSummary:
    """Writes CSV: the prediction and the probabilities of the classes.

    A label that a spreadsheet would take for a formula gets an apostrophe before it. A file is written whole or not at all.
    ``shown`` may hide the progress.
    """
    with user_input():
        loaded = load(model)
    with count_progress(shown) as begin:
        step = begin("predicting")
        return _write_csv_file(loaded, table, to, step) if isinstance(to, Path) else _write_csv(loaded, table, to, step)


def _write_csv_file(model: SavedModel, table: Path, to: Path, step: Advance) -> PredictionSummary:
    try:
        with atomic_write(to) as part, part.open("w", newline="", encoding="utf-8") as file:
            return _write_csv(model, table, file, step)
    except OSError as error:
        raise UserError(f"cannot write {to} ({error.strerror or error}); choose a place you may write to") from error


def _write_csv(model: SavedModel, path: Path, file: TextIO, step: Advance) -> PredictionSummary:
    table, predicted = open_table(path), PredictionSummary()
    for name in model.columns:
        if name not in table.names:
            raise UserError(f"{path} has no column {name!r}; the model reads {', '.join(model.columns)}")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([csv_cell(model.description.target), *(f"P({label})" for label in model.classes)])
    for piece in table.batches(model.columns):
        writer.writerows(_predict_rows(model, piece))
        predicted.add(model.description.columns, piece)
        step(piece.num_rows)
    return predicted


def _predict_rows(model: SavedModel, piece: pa.RecordBatch) -> list[list[Any]]:
    wanted = model.description.columns
    columns = {column.name: _read_column(column.kind, own) for column, own in zip(wanted, piece.columns, strict=True)}
    with user_input():
        if not model.classes:
            return [[value] for value in model.predict(columns).tolist()]
        chances = model.predict_proba(columns)
    chosen = (model.classes[place] for place in np.argmax(chances, axis=1))
    return [[csv_cell(label), *own] for label, own in zip(chosen, chances.tolist(), strict=True)]


def _read_column(kind: Kind, column: pa.Array) -> pa.Array:
    """Numbers written as texts are read by pyarrow, much faster than the model would; categories stay texts."""
    column = clean_column(column)
    found = parse_numbers(column) if kind in ("number", "flag") and pa.types.is_string(column.type) else None
    return column if found is None else found
