"""The transfer heads against the paper: channels in → out of every activation in its tables, widths, and parameters.

tab:transfer-nparam-big and tab:transfer-nparam-512 have two-hidden-layer heads on a ResNet-18's 512 features:
512 → Linear(w) → act → Linear(w) → act → Linear(classes), biases everywhere, no batch norm.
NOTE[paper]: a:transfer names a ResNet-50 once; its 2048 features would give other counts than both tables.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import torch

import boolit
from boolit.lab.models.mlp import LINEAR, Head
from boolit.lab.paper.verification.check import Check, count_and_run, uniform
from boolit.nn.width import round_width

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


# Maps of every activation, and the widths that follow from them.

# Nominal width, partition, the width printed for it (tab:transfer-nparam-big, tab:transfer-nparam-512, tab:tmnx).
WIDTHS = (
    (650, "or_xnor_ail_p", 648),
    (650, "or_and_xnor_ail_p", 648),
    (512, "or_xnor_ail_p", 512),
    (512, "or_and_xnor_ail_p", 510),
    (70, "or_xnor_ail_p", 72),
    (70, "or_and_xnor_ail_p", 72),
)


def check_maps() -> Iterator[Check]:
    """Maps by kind, the three maps the paper misprints, and the rule that rounds a width."""
    rows = [row for row in head_rows() if row.table == TABLES[0] and row.map]
    for printed in dict.fromkeys(row.map for row in rows):
        specs = [row.activation for row in rows if row.map == printed]
        name = f"{len(specs)} activations, {specs[0]} … {specs[-1]}"
        yield Check(name, printed, uniform({spec: measured_map(spec) for spec in specs}))
    yield from _misprints()
    for nominal, spec, width in WIDTHS:
        yield Check(f"width {nominal} rounded for {spec}", width, round_width(nominal, boolit.activation(spec).divisor))


def measured_map(spec: str) -> str:
    """The map the module states, if that is also what happens to a tensor of 12 channels; otherwise both."""
    module = boolit.activation(spec)
    inputs, outputs = module.map
    stated, happened = f"{inputs}→{outputs}", f"{inputs}→{module(torch.zeros(3, 12)).shape[-1] * inputs / 12:g}"
    return stated if stated == happened else f"stated {stated}, happened {happened}"


def _misprints() -> Iterator[Check]:
    misprints = (
        ("or_and_xnor_ail_d", "3→2", "2→3", "a:transfer says 3→2, its own tables 2→3"),
        ("max_min_d", "1→1", "2→2", "tab:tmn-og says 1→1, every other table 2→2"),
        ("or_xnor_ail_d", "2→4", "2→2", "s:ensembling says the output has m·n_c channels; with 2→1 gates it is m·n_c/2"),
    )
    for spec, paper, right, note in misprints:
        yield Check(spec, paper, measured_map(spec), expected=right, slip=True, note=note)


# Parameters of the heads.

HEAD, FEATURES = Head(), (512,)
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


def check_heads() -> Iterator[Check]:
    """Each kind of head with each number of classes to the last parameter, then every cell of both tables."""
    for kind, table, spec, width, counts in KINDS:
        printed = next(row for row in head_rows() if (row.table, row.activation) == (table, spec)).thousands
        for dataset, exact in zip(DATASETS, counts, strict=True):
            name = f"{kind}{f', width {width}' if width else ''}, {CLASSES[dataset]} classes"
            count = count_and_run(HEAD, FEATURES, CLASSES[dataset], *_layers(spec, width), torch.zeros(2, *FEATURES))
            yield Check(name, f"{printed[dataset]}k", count, expected=exact)
    for table in TABLES:
        yield _whole_table(table)
    yield from _nearest_widths()


def _layers(spec: str, width: int | None) -> tuple[list[int], str]:
    """Hidden widths and activation; the linear head has no hidden layer."""
    return ([], LINEAR) if width is None else ([width, width], spec)


def _parameters(spec: str, width: int | None, classes: int) -> int:
    widths, name = _layers(spec, width)
    return HEAD.parameters(FEATURES, classes, widths, boolit.activation(name))


def _whole_table(table: str) -> Check:
    counts = {
        (row.activation, dataset): (row.thousands[dataset], round(_parameters(row.activation, row.width, classes) / 1000))
        for row in head_rows()
        if row.table == table
        for dataset, classes in CLASSES.items()
    }
    wrong = [f"{spec} on {dataset}" for (spec, dataset), (printed, ours) in counts.items() if printed != ours]
    cells = len(counts)
    note = f"wrong: {', '.join(wrong[:5])}{' …' if len(wrong) > 5 else ''}" if wrong else ""
    return Check(f"cells of {table} that agree", cells, cells - len(wrong), note=note)


def _nearest_widths() -> Iterator[Check]:
    """The widths whose head with 100 classes is nearest to ReLU's."""
    budget = _parameters("relu", 512, 100)
    note = "the paper says its widths make the heads for 100 classes equal in size; {} is nearer to the 1→1 head's than {}"
    for spec, printed, nearest in (("or_ail", 650, 648), ("or_and_xnor_ail_d", 438, 436)):
        width, _ = HEAD.widths_for_budget(budget, 2, FEATURES, 100, boolit.activation(spec))
        yield Check(
            f"width of {spec} nearest to relu's", printed, width, nearest, slip=True, note=note.format(nearest, printed)
        )
