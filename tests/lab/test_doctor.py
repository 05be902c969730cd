"""What ``boolit doctor`` says is true, and what is wrong is a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import boolit
from boolit.cli._app import run
from boolit.lab import doctor


def test_facts_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["software"]["boolit"] == boolit.__version__
    assert facts["software"]["torch"] == str(torch.__version__)
    assert {"active", "reason"} <= set(facts["kernels"])
    assert "cpu" in facts["devices"]["available"]
    assert facts["extras"]["lab"]["pydantic"]


def test_facts_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    text = capsys.readouterr().out
    for section in ("software", "kernels", "devices", "extras", "data"):
        assert f"\n{section}\n" in f"\n{text}"


def test_a_data_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "file" / "data"))
    warnings = [line for section in doctor.examine() for line in section.warnings]
    assert any("set BOOLIT_DATA" in line for line in warnings)
