"""``boolit data``: what it lists, fetches and finds wrong."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from boolit.cli import main
from boolit.lab.datasets import dataset_names
from boolit.lab.datasets.chorales import Chorales
from boolit.lab.datasets.download import fetch as _fetch
from boolit.lab.datasets.download.published import PublishedFile
from boolit.lab.datasets.status import dataset_statuses

Run = Callable[..., tuple[int, str, str]]
CONTENT = b"a small dataset"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(["data", *arguments])
        assert isinstance(exit_.value.code, int)
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return run


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedFile:
    """The only file of all datasets; it is not here, and the network has it."""
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    digest = hashlib.sha256(CONTENT).hexdigest()
    published = PublishedFile("chorales", "file.gz", ("https://example.org/file.gz",), digest, len(CONTENT))
    for status in dataset_statuses():
        if status.published:
            monkeypatch.setattr(status.published, "files", (published,) if status.published is Chorales else ())

    def download(wanted: PublishedFile, *_: object) -> None:
        wanted.path.parent.mkdir(exist_ok=True)
        wanted.path.write_bytes(gzip.compress(CONTENT))

    monkeypatch.setattr(_fetch, "_download", download)
    return published


def spoil(published: PublishedFile) -> None:
    published.path.parent.mkdir(exist_ok=True)
    published.path.write_bytes(gzip.compress(b"another dataset"))


def test_list_names_every_dataset_with_its_origin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    code, out, err = run("list")
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert {*dataset_names(), "weights"} <= set(rows)
    assert "generated" in rows["parity"]
    assert "in scikit-learn" in rows["digits"]
    assert "464,810" in rows["covertype"]
    assert "no: boolit data fetch mnist" in rows["mnist"]
    assert "no: put it here by hand" in " ".join(rows["cars"].split())
    assert "licence: CC BY-SA 3.0" in out
    assert str(tmp_path) in out


def test_list_as_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json")[1])}
    assert set(entries) == {*dataset_names(), "weights"}
    assert (entries["weights"]["here"], entries["weights"]["task"], entries["weights"]["samples"]) == (False, None, {})
    assert entries["flowers"]["samples"] == {"train": 6_552, "valid": 819, "test": 818}
    assert entries["mnist"]["samples"] == {"train": 50_000, "valid": 10_000, "test": 10_000}
    assert (entries["mnist"]["here"], len(entries["mnist"]["files"])) == (False, 4)
    assert (entries["xor"]["generated"], entries["xor"]["here"], entries["xor"]["task"]) == (True, True, "binary")
    assert entries["digits"]["package"] == "scikit-learn"
    assert [entry["name"] for entry in json.loads(run("list", "xor", "--json")[1])] == ["xor"]


@pytest.mark.usefixtures("published")
def test_a_dataset_that_is_here_is_listed_so(run: Run) -> None:
    assert not json.loads(run("list", "chorales", "--json")[1])[0]["here"]
    run("fetch", "chorales")
    assert json.loads(run("list", "chorales", "--json")[1])[0]["here"]


def test_fetch_says_what_it_did(run: Run, published: PublishedFile) -> None:
    assert run("fetch")[:2] == (0, "dataset   file     state  \nchorales  file.gz  fetched\n")
    assert "was here" in run("fetch", "chorales")[1]
    spoil(published)
    assert "was bad, fetched again" in run("fetch")[1]
    assert json.loads(run("fetch", "--json")[1]) == [
        {"dataset": "chorales", "file": str(published.path), "state": "whole", "fault": None}
    ]


@pytest.mark.usefixtures("published")
def test_what_has_no_files_is_told_if_it_was_named(run: Run) -> None:
    assert run("fetch", "parity", "digits")[1] == (
        "parity has no files to fetch: generated\ndigits has no files to fetch: in scikit-learn\n"
    )


@pytest.mark.usefixtures("published")
def test_a_fetch_that_fails_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(_fetch, "_download", refuse)
    code, out, err = run("fetch", "chorales")
    assert (code, out) == (2, "")
    assert "file.gz of chorales could not be downloaded" in err
    assert "(example.org: Connection refused)" in err
    assert err.count("\n") == 1


def test_check_exits_with_1_on_a_bad_file_and_names_the_fix(run: Run, published: PublishedFile) -> None:
    code, out, _ = run("check")
    assert (code, "not here" in out) == (0, True)
    run("fetch")
    code, out, _ = run("check")
    assert (code, "whole" in out) == (0, True)
    spoil(published)
    code, out, _ = run("check", "chorales")
    assert code == 1
    assert f"bad: {published.path} was altered" in out
    assert "run `boolit data fetch chorales`" in out
    code, out, _ = run("check", "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["files"][0]["state"]) == (1, False, "bad")


@pytest.mark.parametrize("command", ["list", "fetch", "check"])
def test_an_unknown_name_is_one_line(run: Run, command: str) -> None:
    code, out, err = run(command, "minst")
    assert (code, out) == (2, "")
    assert err == "error: unknown dataset 'minst'; choose mnist\n"


def test_help_lists_the_commands(run: Run) -> None:
    code, out, _ = run()
    assert code == 0
    assert all(f"\n  {command} " in out for command in ("list", "fetch", "check"))


def test_own_weights_are_told_of_alike(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used in place of the published ones: neither absent nor comparable."""
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    assert "no: boolit data fetch weights" in run("list", "weights")[1]
    assert "not here" in run("check", "weights")[1]
    own = tmp_path / "weights" / "resnet18-backbone.pth"
    own.parent.mkdir()
    own.write_bytes(b"weights")
    assert "yes, your own: not compared" in run("list", "weights")[1]
    code, out, _ = run("check", "weights")
    assert code == 0
    assert "resnet18-backbone.pth  here, your own: not compared" in out
    assert json.loads(run("check", "weights", "--json")[1]) == {
        "ok": True,
        "files": [{"dataset": "weights", "file": str(own), "state": "own", "fault": None}],
    }
