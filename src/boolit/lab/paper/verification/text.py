"""Checks of the claims of the text and of tables that follow from other tables."""

from __future__ import annotations

import math
from collections.abc import Iterator

from boolit.lab.paper.claims import claims, evaluate
from boolit.lab.paper.printed import frame, table, table_rows, tables
from boolit.lab.paper.verification import Check
from boolit.lab.paper.verification.networks import CLASSES

# The columns of the hidden table of ranks: the table, and the column of it, that they rank.
RANKED = {
    "CIFAR10": ("tab:resnet50-cifar10", ""),
    "CIFAR100": ("tab:resnet50-cifar100", ""),
    "Transfer": ("tab:transfer-head-512", ""),
    "I-RVN": ("tab:sran", "Acc"),
    "CZSL": ("tab:tmnx", "Top-1"),
}


def check_claims() -> Iterator[Check]:
    """Check that the recorded verdict on each claim is what the printed tables give."""
    for claim in claims():
        verdict = evaluate(claim)
        note = f"{claim.place}: “{claim.quote}” {verdict.details}".strip()
        yield Check(claim.id, claim.printed, verdict.verdict, kind="claim", note=note)


def check_tables() -> Iterator[Check]:
    """Check the numbers of tab:datasets, three statements about tables, and the hidden table of ranks."""
    datasets = {row["dataset"]: row for row in frame("tab:datasets").to_dict("records")}
    classes = [name for name, row in datasets.items() if row["classes"] in map(str, CLASSES.values())]
    yield Check("tab:datasets: numbers of classes that the sizes of the transfer heads show", 8, len(classes))
    train, test = datasets["Covertype"]["train"], datasets["Covertype"]["test"]
    yield Check("tab:datasets: samples of Covertype", 581_012, train + test)
    yield Check("tab:datasets: its training samples, 80 %", train, round(0.8 * (train + test)))
    rows = set(table_rows("tab:transfer-extra"))
    absent = sum(spec not in rows for spec in ("sigmoid", "relu6", "hardtanh", "log_sigmoid", "hardsigmoid", "softshrink"))
    note = "s:transfer says that every activation of PyTorch 1.10 is compared"
    yield Check("six activations of PyTorch without a row in tab:transfer-extra", 0, absent, 6, kind="erratum", note=note)
    cells = sum(cell.column == "SVHN" for cell in table("tab:transfer-head-512"))
    note = "a:transfer says that some are missing"
    yield Check("experiments on SVHN in tab:transfer-head-512, of 46", "< 46", cells, 46, kind="erratum", note=note)
    errors = [label for label in tables() if all(math.isnan(cell.standard_error) for cell in table(label))]
    note = "the checklist says that all tables have error over several seeds"
    yield Check("tables of results without errors", "none", ", ".join(errors), "tab:sran", kind="erratum", note=note)
    for task in RANKED:
        yield _ranks(task)


def _ranks(task: str) -> Check:
    """Count the rows whose printed mean and sd (divided by n) are those of ranks in another table."""
    label, column = RANKED[task]
    printed = frame("tab:ranking").query("task == @task").set_index("activation")
    cells = frame(label)
    means = cells.pivot(index="activation", columns=cells.columns[1], values="mean").loc[table_rows(label)]
    means = means.loc[means.index.isin(printed.index), [column] if column else list(means.columns)]
    # Ties: in the order of the table; the ranks of a single column are those of the printed digits, and shared.
    ranks = means.round(2).rank(ascending=False) if column else means.rank(ascending=False, method="first")
    close = (ranks.mean(axis=1) - printed["mean_rank"]).abs() < 0.0501
    if not column:
        close &= (ranks.std(axis=1, ddof=0) - printed["standard_deviation"]).abs() < (0.0501 if task == "Transfer" else 0.00501)
    note = "two activations share 94.84 at 67M; the printed ranks break this tie the other way" if task == "CIFAR10" else ""
    expected = len(printed) - 2 if task == "CIFAR10" else None
    return Check(
        f"{task} of tab:ranking: rows that follow from {label}",
        len(printed),
        int(close.sum()),
        expected,
        kind="derived",
        note=note,
    )
