"""Which of our runs belong into which column of a table of the paper, and by which of their figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from boolit.lab.models import family
from boolit.lab.results.statistics import Metric, Score, metric_of, scores
from boolit.lab.runs import Record

LINEAR = "linear"
FACTORS = {"": 1.0, "k": 1e3, "M": 1e6}
NEAR = 1.25  # a column "65k" takes sizes up to so many times larger or smaller
# The columns of the transfer tables, and what we call these datasets.
DATASETS = {
    "Cal101": "caltech101",
    "CIFAR10": "cifar10",
    "CIFAR100": "cifar100",
    "Flowers": "flowers",
    "StfCars": "cars",
    "STL-10": "stl10",
    "SVHN": "svhn",
}
# Columns that are figures of the same runs: the configurations of I-RAVEN, and how many guesses count.
FIGURES = {
    "Acc": "test_accuracy",
    "Center": "test_accuracy_center_single",
    "2×2G": "test_accuracy_distribute_four",
    "3×3G": "test_accuracy_distribute_nine",
    "O-IC": "test_accuracy_in_center_single_out_center_single",
    "O-IG": "test_accuracy_in_distribute_four_out_center_single",
    "L-R": "test_accuracy_left_center_single_right_center_single",
    "U-D": "test_accuracy_up_center_single_down_center_single",
    "Top-1": "test_auc",
    "Top-2": "test_auc2",
    "Top-3": "test_auc3",
}
# What the model of a run must say where tables differ in nothing else.
MODELS = {
    "tab:transfer-head-big": {"sizes": "matched"},
    "tab:transfer-extra": {"sizes": "matched"},
    "tab:transfer-head-512": {"sizes": "equal"},
    "tab:tmn-og": {"name": "tmn", "variant": "tmn"},
    "tab:tmnx": {"name": "tmn", "variant": "tmnx"},
    "tab:sran": {"name": "sran"},
}


def in_columns(label: str, columns: Sequence[str], records: Sequence[Record]) -> Iterator[tuple[str, str, Metric, Score]]:
    """The scores that belong into a table, each with its row and column: a dataset, a figure, or a size or depth."""
    metric = metric_of(records)
    for suffix, own in _kinds(label, [record for record in records if _of_model(record, MODELS.get(label, {}))]):
        for column in columns:
            for judge, score in _in_column(column, own, metric):
                yield f"{_row(score)}{suffix}", column, judge, score


def _in_column(column: str, records: Sequence[Record], metric: Metric) -> Iterator[tuple[Metric, Score]]:
    if column in DATASETS:
        yield from ((metric, score) for score in scores(_encoded(records, DATASETS[column]), metric.name))
    elif column in FIGURES:
        judged = [record for record in records if FIGURES[column] in record.metrics]
        yield from ((Metric(FIGURES[column]), score) for score in scores(judged, FIGURES[column]))
    else:
        found = scores(records, metric.name)
        yield from ((metric, score) for score in found if _belongs(column, score.size, score.depth))


def _row(score: Score) -> str:
    """The row of a score: a network without hidden layers is linear there, and shares are equal where they can be."""
    if score.depth == 0 and score.activation == "identity":
        return LINEAR
    return score.activation.removesuffix("u") if score.activation.endswith("_pu") else score.activation


def _kinds(label: str, records: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """The networks that have rows of their own, and what is added to an activation's name there."""
    if label != "tab:sran":
        return [("", list(records))]
    published = [record for record in records if _of_model(record, {"layout": "published"})]
    return [("", [record for record in records if record not in published]), (" (base SRAN)", published)]


def _of_model(record: Record, wanted: Mapping[str, str]) -> bool:
    model = record.config.get("model")
    if not wanted or not isinstance(model, Mapping):
        return not wanted
    return all(getattr(family(model), name, None) == value for name, value in wanted.items())


def _encoded(records: Sequence[Record], dataset: str) -> list[Record]:
    """The runs whose samples are features of a dataset's pictures."""
    tables = ((record, record.config.get("data")) for record in records)
    made = ((record, data.get("of")) for record, data in tables if isinstance(data, Mapping))
    return [record for record, of in made if isinstance(of, Mapping) and of.get("name") == dataset]


def _belongs(column: str, size: int, depth: int) -> bool:
    """Whether runs of a size and depth stand under a column: a number of layers, or of parameters.

    Example:
        >>> _belongs("65k", 65536, 2), _belongs("2", 300000, 2), _belongs("4M", 65536, 2)
        (True, True, False)
    """
    number = re.fullmatch(r"([\d.]+)([kM]?)", column)
    if number is None:
        return False
    value = float(number[1]) * FACTORS[number[2]]
    if not number[2]:
        return depth == value
    return 1 / NEAR <= size / value <= NEAR
