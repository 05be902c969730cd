"""``boolit data generate``: files and pages, and what it says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from boolit.cli._app import application
from boolit.errors import UserError

NAMES = ("center_single", "distribute_four")
CHOSEN = [word for name in NAMES for word in ("--configuration", name)]


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(application(), ["data", "generate", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_files_are_made_once_and_counted(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "problems"), "--seed", "5")
    first = json.loads(run("iraven", "--problems", "3", *CHOSEN, *out, "--json").stdout)
    assert first == {
        "folder": str(tmp_path / "problems"),
        "seed": 5,
        "problems": 3,
        "made": dict.fromkeys(NAMES, 3),
        "pages": [],
    }
    assert len(list((tmp_path / "problems" / "distribute_four").iterdir())) == 3
    again = run("iraven", "--problems", "4", *CHOSEN, *out).stdout
    rows = {line.split()[0]: line.split()[1:] for line in again.splitlines()}
    assert rows["center_single"] == ["4", "1"]
    assert f"The problems are in {tmp_path / 'problems'}." in again.replace("\n", " ")


def test_they_go_where_the_dataset_looks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path))
    run("iraven", "--problems", "1", "--configuration", "center_single")
    assert (tmp_path / "iraven" / "1234-v1" / "center_single" / "RAVEN_0_train.npz").is_file()


def test_a_page_for_each_configuration(tmp_path: Path) -> None:
    page, out = tmp_path / "look.png", ("--out", str(tmp_path))
    found = json.loads(run("iraven", "--problems", "1", *CHOSEN, *out, "--page", str(page), "--json").stdout)
    assert found["pages"] == [str(tmp_path / f"look-{name}.png") for name in NAMES]
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in found["pages"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--configuration", "centre"), "'centre' is not a configuration of I-RAVEN"),
        (("--page", "look.pdf"), r"--page look\.pdf is no PNG; give a name that ends in \.png"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        run("iraven", "--problems", "1", "--out", str(tmp_path), *arguments)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_what_can_be_made() -> None:
    assert "iraven" in run().stdout
