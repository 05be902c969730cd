"""The report of a benchmark: what ``--report FILE.html`` writes."""

from pathlib import Path

import pytest

from boolit.cli._app import run
from boolit.lab.bench.page import training_section, write_bench_page
from boolit.lab.bench.training import COVERTYPE, PARITY, AugmentationCost, HeadsCost, StackingGain, StepCost, TrainingResult

TRAINING = TrainingResult(
    {PARITY: StackingGain(320, 0.01, 0.3, 0.4), COVERTYPE: StackingGain(40, 0.1, 0.9, 1.2)},
    AugmentationCost(10, 0.002, 0.02),
    {"relu": StepCost(23_000_000, 2.0, 2_000_000_000), "or_ail": StepCost(23_000_001, 1.9, 1_800_000_000)},
    HeadsCost(230, 2.9, 0.008, 1.0),
)


def test_the_gates_as_a_page(tmp_path: Path) -> None:
    tiny = ("--shape", "8x12", "--repeats", "2", "--threads", "1", "--activations", "or_ail,xnor_il", "--json")
    assert run(["bench", "gates", *tiny, "--report", str(tmp_path / "gates.html")]) == 0
    text = (tmp_path / "gates.html").read_text(encoding="utf-8")
    assert "bars are met" in text
    assert "XNOR<sub>IL</sub>" in text


def test_training_as_a_page(tmp_path: Path) -> None:
    write_bench_page(TRAINING, tmp_path / "training.html")
    text = (tmp_path / "training.html").read_text(encoding="utf-8")
    assert "0.95" in text, "the time of OR_AIL's step over ReLU's"
    assert "23,000,001" in text


def test_bars_are_counted() -> None:
    assert training_section(TRAINING).verdict == "4 of 4 bars are met."
    slow = TrainingResult(
        {PARITY: StackingGain(320, 1.0, 2.0, 3.0)},
        AugmentationCost(10, 0.2, 0.02),
        TRAINING.steps,
        HeadsCost(230, 0.1, 0.1, 9.0),
    )
    assert training_section(slow).verdict == "0 of 3 bars are met."


@pytest.mark.parametrize("name", ["page.txt", "none/page.html"])
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(["bench", "gates", "--report", str(tmp_path / name)]) == 2
    assert "name a file that ends in .html" in capsys.readouterr().err
