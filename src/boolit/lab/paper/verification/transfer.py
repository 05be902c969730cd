"""tab:transfer-nparam-big and tab:transfer-nparam-512: parameters of two-hidden-layer heads on a ResNet-18's 512 features.

512 → Linear(w) → act → Linear(w) → act → Linear(classes), biases everywhere, no batch norm.
NOTE[paper]: a:transfer names a ResNet-50 once; its 2048 features would give other counts than both tables.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import resources

import torch
from torch import nn

import boolit
from boolit.lab.paper.verification.check import Check, Value, agreed
from boolit.nn.width import count_parameters, mlp_parameters, width_for_budget

# The paper's two tables of transfer heads: every activation it tests, with map, width and parameters in thousands.

# Classes of each dataset, under the tables' headings (tab:datasets).
CLASSES = {"Cal101": 101, "CIFAR10": 10, "CIFAR100": 100, "Flowers": 102, "StfCars": 196, "STL-10": 10, "SVHN": 10}
TABLES = ("tab:transfer-nparam-big", "tab:transfer-nparam-512")


@dataclass(frozen=True)
class HeadRow:
    """A row: ``activation`` is a spec, or ``linear`` for the head without a hidden layer; ``thousands`` is by dataset."""

    table: str
    activation: str
    map: str
    width: int | None
    thousands: dict[str, int]


@lru_cache(maxsize=1)
def head_rows() -> tuple[HeadRow, ...]:
    """All rows of both tables."""
    lines = resources.files(__package__).joinpath("transfer_heads.csv").read_text(encoding="utf-8").splitlines()
    return tuple(
        HeadRow(
            table=row["table"],
            activation=row["activation"],
            map=row["map"],
            width=int(row["width"]) if row["width"] else None,
            thousands={dataset: int(row[dataset]) for dataset in CLASSES},
        )
        for row in csv.DictReader(lines)
    )


# Multi-layer perceptrons built as torch modules: the count of what is really there, beside the formula.


def built_parameters(inputs: int, widths: Sequence[int], outputs: int, spec: str, batch_norm: bool = False) -> int:
    """Parameters of Linear [BatchNorm] activation … Linear, built and run once, which its shapes must survive.

    Example:
        >>> built_parameters(784, [250, 250], 10, "relu", batch_norm=True)
        262510
    """
    layers: list[nn.Module] = []
    features = inputs
    with torch.device("meta"):  # neither memory nor random numbers are spent on initial weights
        for width in widths:
            activation = boolit.activation(spec)
            layers += [nn.Linear(features, width), *([nn.BatchNorm1d(width)] if batch_norm else []), activation]
            features = activation.out_features(width)
        layers.append(nn.Linear(features, outputs))
    network = nn.Sequential(*layers).to_empty(device="cpu").eval()
    with torch.inference_mode():
        network(torch.zeros(2, inputs))
    return count_parameters(network)


FEATURES = 512
KINDS = (
    # a row that stands for its kind: table, spec, width; then its exact count for 101, 10, 100, 102 and 196 classes
    ("linear", TABLES[0], "linear", None, (51_813, 5_130, 51_300, 52_326, 100_548)),
    ("1→1, 2→2", TABLES[0], "relu", 512, (577_125, 530_442, 576_612, 577_638, 625_860)),
    ("2→1", TABLES[0], "or_ail", 650, (578_276, 548_610, 577_950, 578_602, 609_246)),
    ("partitions", TABLES[0], "or_xnor_ail_p", 648, (575_849, 546_274, 575_524, 576_174, 606_724)),
    ("2→3", TABLES[0], "or_and_xnor_ail_d", 438, (579_356, 519_478, 578_698, 580_014, 641_866)),
    ("2→1, partition of 2", TABLES[1], "or_ail", 512, (420_197, 396_810, 419_940, 420_454, 444_612)),
    ("partition of 3", TABLES[1], "or_and_xnor_ail_p", 510, (418_046, 394_750, 417_790, 418_302, 442_366)),
    ("2→3", TABLES[1], "or_and_xnor_ail_d", 512, (734_053, 664_074, 733_284, 734_822, 807_108)),
)
DATASETS = ("Cal101", "CIFAR10", "CIFAR100", "Flowers", "StfCars")


def checks() -> Iterator[Check]:
    """Each kind of head with each number of classes to the last parameter, then every cell of both tables."""
    for kind, table, spec, width, counts in KINDS:
        printed = next(row for row in head_rows() if (row.table, row.activation) == (table, spec)).thousands
        for dataset, exact in zip(DATASETS, counts, strict=True):
            name = f"{kind}{f', width {width}' if width else ''}, {CLASSES[dataset]} classes"
            yield Check(name, f"{printed[dataset]}k", _parameters(spec, width, CLASSES[dataset]), expected=exact)
    for table in TABLES:
        yield _whole_table(table)
    yield from _nearest_widths()


def _parameters(spec: str, width: int | None, classes: int) -> Value:
    """By formula and by building the head; they must agree."""
    return agreed(formula=_formula(spec, width, classes), built=built_parameters(FEATURES, *_layers(spec, width, classes)))


def _formula(spec: str, width: int | None, classes: int) -> int:
    widths, outputs, name = _layers(spec, width, classes)
    return mlp_parameters(FEATURES, widths, outputs, boolit.activation(name))


def _layers(spec: str, width: int | None, classes: int) -> tuple[list[int], int, str]:
    """Hidden widths, outputs and activation; the linear head has no hidden layer, so that its activation is never used."""
    return ([], classes, "identity") if width is None else ([width, width], classes, spec)


def _whole_table(table: str) -> Check:
    rows = [row for row in head_rows() if row.table == table]
    wrong = [f"{row.activation} on {dataset}" for row in rows for dataset in CLASSES if not _cell_agrees(row, dataset)]
    cells = len(rows) * len(CLASSES)
    note = f"wrong: {', '.join(wrong[:5])}{' …' if len(wrong) > 5 else ''}" if wrong else ""
    return Check(f"cells of {table} that agree", cells, cells - len(wrong), note=note)


def _cell_agrees(row: HeadRow, dataset: str) -> bool:
    return round(_formula(row.activation, row.width, CLASSES[dataset]) / 1000) == row.thousands[dataset]


def _nearest_widths() -> Iterator[Check]:
    """The widths whose head with 100 classes is nearest to ReLU's."""
    budget = _formula("relu", 512, 100)
    note = "the paper says its widths make the heads for 100 classes equal in size; {} is nearer to the 1→1 head's than {}"
    for spec, printed, nearest in (("or_ail", 650, 648), ("or_and_xnor_ail_d", 438, 436)):
        width = width_for_budget(partial(_formula, spec, classes=100), budget, boolit.activation(spec).divisor)
        yield Check(
            f"width of {spec} nearest to relu's", printed, width, nearest, slip=True, note=note.format(nearest, printed)
        )
