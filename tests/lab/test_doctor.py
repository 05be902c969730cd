"""The doctor says what is active and why not, whatever it finds."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from platformdirs.api import PlatformDirsABC
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from boolit.cli import main
from boolit.lab import doctor
from boolit.lab.common import files as folders
from boolit.lab.common.errors import EXTRAS
from boolit.logic import cpu
from boolit.logic.kernels import training

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["doctor"])
    assert exit_.value.code == 0
    return capsys.readouterr().out


def pretend(monkeypatch: pytest.MonkeyPatch, status: cpu.KernelStatus) -> None:
    monkeypatch.setattr(cpu, "status", lambda: status)
    monkeypatch.setattr(training, "STATUS", status)


TRITON = cpu.KernelStatus(True, "Triton 3.9.0")


@pytest.mark.parametrize(
    ("available", "status", "line", "warnings"),
    [
        (False, TRITON, "no device for them", 0),
        (True, TRITON, "active: Triton 3.9.0", 0),
        (True, cpu.KernelStatus(False, "Triton is not installed"), "inactive: Triton is not installed", 1),
    ],
)
def test_kernels_for_gpus(
    available: bool, status: cpu.KernelStatus, line: str, warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    section = doctor.kernel(cpu.KernelStatus(True, "built and loaded"), status)
    assert section.facts["cuda"] == line
    assert len(section.warnings) == warnings


def test_active_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(training, "STATUS", cpu.KernelStatus(True, "built and loaded"))
    section = doctor.kernel(cpu.KernelStatus(True, "built and loaded", "/lib/gates.so", "x86-64-v3", threads, 1), TRITON)
    assert section.warnings == ()
    assert section.facts["active"] is True
    assert section.facts["instructions"] == "x86-64-v3"
    assert section.facts["threads_shared_with_torch"] is True


def test_kernels_with_threads_of_their_own() -> None:
    section = doctor.kernel(cpu.KernelStatus(True, "built and loaded", threads=torch.get_num_threads() + 1), TRITON)
    assert section.facts["threads_shared_with_torch"] is False


def test_a_failed_build_is_a_warning_of_one_line_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    pretend(monkeypatch, cpu.KernelStatus(False, "not built: install a C++ compiler, then reinstall boolit"))
    (line,) = [line for line in said(capsys).splitlines() if line.startswith("warning:")]
    assert line.endswith("not built: install a C++ compiler, then reinstall boolit")


def test_kernels_of_training_that_are_missing_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STATUS", cpu.KernelStatus(False, "not built"))
    (line,) = doctor.kernel(cpu.KernelStatus(True, "built and loaded"), TRITON).warnings
    assert line == "the kernels of training are inactive, the lab trains by slower formulas: not built"


def test_the_setting_of_the_kernels_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_KERNELS", "0")
    assert doctor.kernel(cpu.status(), TRITON).facts["BOOLIT_KERNELS"] == "0"


def test_it_asks_the_real_kernels() -> None:
    facts = next(section.facts for section in doctor.examine() if section.name == "kernels")
    assert facts["active"] is cpu.status().active
    assert facts["reason"] == cpu.status().reason


def test_all_is_well_without_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pretend(monkeypatch, cpu.KernelStatus(True, "built and loaded"))
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    monkeypatch.setattr(doctor, "_version", lambda _: "1.0")
    assert said(capsys).rstrip().endswith("all is well")


def test_values_with_brackets_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "[bold]data"
    monkeypatch.setenv("BOOLIT_DATA", str(folder))
    assert f"BOOLIT_DATA                {folder}" in said(capsys)


def test_a_half_installed_extra_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None if package in ("onnxruntime", "scikit-learn") else "1.0")
    section = doctor.extras()
    assert section.warnings == ("the packages for onnx are incomplete: pip install onnxruntime",)
    assert section.facts["sklearn"] == {"scikit-learn": None}


def test_versions_are_those_installed() -> None:
    lab = doctor.extras().facts["lab"]
    assert isinstance(lab, dict)
    assert lab["typer"] == metadata.version("typer")
    assert doctor._version("no-such-package") is None


def test_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in ("lab", "sklearn"):
        names = [requirement.partition(">")[0] for requirement in declared[extra] if ";" not in requirement]
        assert [package for package in EXTRAS[extra] if package != "tomli"] == names


def test_json_has_only_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["software"]["torch_threads"] == torch.get_num_threads()
    assert isinstance(report["warnings"], list)


class TestDevices:
    def test_a_torch_without_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", None)
        monkeypatch.setattr(torch.version, "hip", None)
        assert doctor.devices().facts["cuda"] == "no: this torch is built without it"

    def test_a_machine_without_a_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", "12.9")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert doctor.devices().facts["cuda"] == "no: torch has version 12.9, but there is no device or driver for it"

    def test_two_devices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.version, "cuda", "12.9")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
        assert doctor.devices().facts["cuda"] == "GPU 0, GPU 1 (version 12.9)"
        assert doctor.devices().facts["auto"] == "cuda"
        assert "cuda:0, cuda:1" in str(doctor.devices().facts["here"])

    def test_mps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        assert doctor.devices().facts["mps"] == "no: torch has it, but this machine does not"


class TestDataFolder:
    def test_is_what_the_variable_says(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "there"))
        assert folders.data_folder() == tmp_path / "there"
        section = doctor.data(folders.data_folder())
        assert section.facts["exists"] is False
        assert section.warnings == ()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("platform", "expected"),
        [(Unix, ".cache/boolit"), (MacOS, "Library/Caches/boolit"), (Windows, "AppData/Local/boolit")],
    )
    def test_else_lies_in_the_platforms_cache(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: type[PlatformDirsABC], expected: str
    ) -> None:
        for variable in ("BOOLIT_DATA", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setattr("platformdirs.windows.get_win_folder", {"CSIDL_LOCAL_APPDATA": str(tmp_path / "AppData/Local")}.get)
        monkeypatch.setattr(folders, "PlatformDirs", platform)
        assert folders.data_folder() == tmp_path / expected

    @pytest.mark.parametrize(("configured", "obeyed"), [("absolute", True), ("relative/cache", False)])
    def test_obeys_an_absolute_xdg_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, configured: str, obeyed: bool
    ) -> None:
        monkeypatch.delenv("BOOLIT_DATA", raising=False)
        monkeypatch.setattr(folders, "PlatformDirs", Unix)
        configured = str(tmp_path / "xdg") if obeyed else configured
        monkeypatch.setenv("XDG_CACHE_HOME", configured)
        assert (folders.data_folder() == tmp_path / "xdg" / "boolit") is obeyed
        assert folders.data_folder().is_absolute()

    def test_that_cannot_be_a_folder_is_a_warning(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("")
        (warning,) = doctor.data(file / "data").warnings
        assert str(file / "data") in warning
        assert "set BOOLIT_DATA" in warning
