"""The study of decoders: ``boolit run decoding``."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boolit.cli import _app
from boolit.lab import decoding


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(_app.application(), ["run", "decoding", *arguments])
    return result.exit_code, result.output


def test_it_has_nothing_to_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert _app.run(["search", "decoding"]) == 2
    assert "nothing to search" in capsys.readouterr().err


def test_it_counts_the_frames_that_each_decoder_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decoding.PROFILES, "quick", {"shots": 400, "steps": 1})
    code, text = run("--out", str(tmp_path))
    assert code == 0, text
    with (tmp_path / "decoding.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["code"] for row in rows] == [code for code, rates in decoding.RATES.items() for _ in rates]
    assert all(0 <= int(row[name]) <= 400 for row in rows for name in decoding.DECODERS)
    for before, after in zip(rows[::3], rows[2::3], strict=True):  # more flips, more failures
        assert int(before["product-sum"]) < int(after["product-sum"])
    assert all(f"{100 * int(row['min-sum']) / 400:.2f}" in text for row in rows)


def test_a_dry_run_decodes_nothing(tmp_path: Path) -> None:
    code, text = run("--dry-run", "--profile", "paper", "--out", str(tmp_path / "results"))
    assert (code, (tmp_path / "results").exists()) == (0, False)
    assert "200,000 shots" in text
