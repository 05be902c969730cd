"""The generated parts of docs/paper.md and the summaries that ship with the package."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from boolit.lab.paper import tables
from boolit.lab.paper.measured import FIGURES, beside_printed, label_of, names, our_cells, summarize

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "paper.md"


def load_script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def evidence() -> ModuleType:
    return load_script("evidence")


@pytest.fixture(scope="module")
def cells(evidence) -> pd.DataFrame:
    return evidence.cells_of_runs()


def test_the_page_has_the_blocks_that_the_evidence_gives(evidence, cells) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert evidence.fill(page, cells) == page


def test_every_table_of_results_has_a_block(evidence) -> None:
    kinds = [match.groups() for match in evidence.BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
    assert {name for kind, name in kinds if kind == "table"} == {label[4:] for label in tables()} | set(FIGURES)


def test_shipped_summaries_are_those_of_the_evidence(cells) -> None:
    keys = ["label", "column", "activation"]
    shipped, made = (frame.set_index(keys).sort_index() for frame in (our_cells(), cells.astype({"column": str})))
    pd.testing.assert_frame_equal(shipped, made, rtol=1e-5, check_dtype=False)
    assert {label_of(name) for name in names()} == set(cells["label"])


def test_a_difference_is_in_combined_standard_errors() -> None:
    cells = pd.DataFrame(
        [["tab:mlp-mnist", "65k", "relu", 98.15, 0.04, 10, 98.3, "reproduction"]],
        columns=["label", "column", "activation", "mean", "standard_error", "n", "best", "kind"],
    )
    (row,) = beside_printed("tab:mlp-mnist", cells).itertuples()
    assert row.difference == pytest.approx((98.15 - row.printed) / (row.printed_error**2 + 0.04**2) ** 0.5)
    (row,) = beside_printed("tab:mlp-mnist", cells.assign(kind="analogue")).itertuples()
    assert row.difference != row.difference


def test_unprinted_numbers_of_the_page_come_from_a_block(evidence) -> None:
    page = evidence.BLOCK.sub("", PAGE.read_text(encoding="utf-8"))
    assert not re.findall(r"\d\d\.\d+ ± ", page)


def test_the_queue_writes_one_row_per_run_and_trains_nothing_twice(tmp_path: Path) -> None:
    reproduce = load_script("reproduce")
    job = reproduce.Job("xor", "xor", "paper", 2, ("training.epochs=1",))
    for commit in ("first", "second"):
        assert reproduce.run(job, tmp_path / "evidence", tmp_path / "results", commit)
    rows = pd.read_csv(tmp_path / "evidence" / "xor.csv")
    assert rows["key"].is_unique
    assert len(rows) == len(job.plan().runs)
    assert set(rows["commit"]) == {"first"}


@pytest.mark.parametrize(("profile", "kind"), [("paper-512", "reproduction"), ("analogue-512", "analogue")])
def test_profiles_of_analogues_are_not_compared_as_reproductions(profile: str, kind: str) -> None:
    run = {"study": "transfer-cifar10", "activation": "relu", "parameters": 512, "depth": 2, "metric": "test_accuracy"}
    cells = summarize(pd.DataFrame([run | {"profile": profile, "value": 0.9}]), "tab:transfer-head-512")
    assert cells[["column", "kind"]].values.tolist() == [["CIFAR10", kind]]


def test_an_analogue_of_iraven_has_one_row_per_configuration(make_result) -> None:
    metrics = {"test_accuracy": 0.3, "test_accuracy_center_single": 0.4, "test_accuracy_distribute_nine": 0.2, "test_loss": 1.0}
    rows = load_script("reproduce").rows(make_result(metrics=metrics), "commit")
    assert [row[7:9] for row in rows] == [[name, str(value)] for name, value in list(metrics.items())[:3]]


def test_a_table_of_analogues_compares_ranks(evidence, tmp_path: Path) -> None:
    keys = ["label", "column", "activation", "mean", "standard_error", "n", "best", "kind"]
    means = {"relu": 30.0, "silu": 35.0, "xnor_ail": 20.0}  # printed: 91.97, 93.13 and 88.97
    rows = [["tab:resnet50-cifar10", "6M", spec, mean, 1.0, 3, mean, "analogue"] for spec, mean in means.items()]
    cells = pd.DataFrame(rows, columns=keys)
    text = evidence.results("resnet50-cifar10", cells).replace("\N{NO-BREAK SPACE}", " ")
    assert text.startswith("Analogue: 3 of 60 cells run, n = 3; rank correlation 1.00 (6M).")
    assert "| 6M printed | 6M ours (n) | 6M ranks |" in text
    assert "| `xnor_ail` | 88.97 ± 0.11 | 20.00 ± 1.00 (3) | 3 → 3 |" in text
    evidence.draw("resnet50-cifar10", cells, tmp_path)
    assert (tmp_path / "resnet50-cifar10.png").exists()
