"""``boolit fetch`` downloads, and says what has to be fetched by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from boolit.cli._app import run


@pytest.fixture(autouse=True)
def _no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))

    def fake(url: str, _hash: str, name: str, folder: Path, downloader: object) -> None:  # noqa: ARG001
        if "figshare" not in url and "ossci" not in url and "pytorch" not in url:
            raise OSError("no network")
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")

    monkeypatch.setattr("pooch.retrieve", fake)


def test_files_are_downloaded_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fetch", "covertype", "weights", "digits"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path / 'covertype' / 'covtype.data.gz'}: downloaded" in out
    assert "resnet18-f37072fd.pth: downloaded" in out
    assert "digits needs no files" in out
    assert run(["fetch", "covertype"]) == 0
    assert "covtype.data.gz: already here" in capsys.readouterr().out


def test_what_is_fetched_by_hand_is_named_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fetch", "cars"]) == 2
    streams = capsys.readouterr()
    assert f"cars_test.tgz or the folder cars_test/ that it unpacks to into {tmp_path / 'cars'}" in streams.out
    assert streams.err.count("\n") == 1
    assert "cars_test.tgz" in streams.err


def test_a_failed_download_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fetch", "svhn"]) == 2
    assert "train_32x32.mat of svhn could not be downloaded (ufldl.stanford.edu: " in capsys.readouterr().err


def test_an_unknown_dataset_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fetch", "cifar11"]) == 2
    assert "unknown dataset 'cifar11'; choose cifar10" in capsys.readouterr().err
