"""README and docs/: the Python code runs, and boolit accepts the commands and studies.

Every block of README.md runs alone. The blocks of another page are one program, from top to bottom. The gallery and the
notebook run when the site is built, which also checks the links between pages.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch

pytestmark = pytest.mark.check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MADE = {"auto_examples", "generated"}  # by the build
PAGES = sorted(page for page in DOCS.rglob("*.md") if not MADE.intersection(page.relative_to(DOCS).parts))
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]

FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>[\w{}-]*)[^\n]*\n(?P<code>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(boolit [^`]+)`")
SHELL = {"sh", "console", "bash"}
OTHER_COMMAND = re.compile(r"\s(?:#|\||>|>>|&&|;)(?:\s|$)")
VARIABLES = re.compile(r"^(?:\w+=\S+\s+)*(?:torchrun (?:--?[\w-]+(?:[= ]\d+)?\s+)*-m )?(?=boolit )")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = (Block(page, text.count("\n", 0, m.start()) + 1, m["language"], m["code"]) for m in FENCE.finditer(text))
    return [block for block in found if block.language in languages]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(code: str) -> list[list[str]]:
    """The arguments of every ``boolit …`` in a shell block, without comments, redirections and what follows a pipe."""
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        command = VARIABLES.sub("", line.strip().removeprefix("$ "))
        if command == "boolit" or command.startswith("boolit "):
            found.append(shlex.split(OTHER_COMMAND.split(command)[0])[1:])
    return found


def execute(block: Block, names: dict[str, Any]) -> None:
    lines_before = "\n" * block.line  # so that a traceback names the line of the page
    exec(compile(lines_before + block.code, str(block.page), "exec", dont_inherit=True), names)


@pytest.mark.parametrize("block", blocks(ROOT / "README.md", "python"), ids=str)
def test_blocks_of_the_readme_run_alone(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    execute(block, {"__name__": "readme"})


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "toml")], ids=lambda page: page.stem)
def test_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is run, studies are checked; in the tutorial the commands run, too, in the same folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page, "python", "toml", *(SHELL if page.stem == "tutorial" else ())):
        if block.language == "python" and "results/" in block.code:
            compile(block.code, str(page), "exec")  # it reads the results of a command that takes too long here
        elif block.language == "python":
            execute(block, names)
        elif block.language == "toml":
            check_study(block, tmp_path)
        else:
            for arguments in commands(block.code):
                subprocess.run([sys.executable, "-m", "boolit", *arguments], check=True, timeout=600)


def check_study(block: Block, folder: Path) -> None:
    """Load a whole study as `boolit run` does; of a part, check the data and the model."""
    from boolit.lab.datasets import source
    from boolit.lab.models import family
    from boolit.lab.studies import load_study

    tables = tomllib.loads(block.code)
    if "sweep" in tables:
        file = folder / f"{block.page.stem}-{block.line}.toml"
        file.write_text(block.code, encoding="utf-8")
        load_study(file)
        return
    if "data" in tables:
        source(tables["data"])
    if "model" in tables:
        family(tables["model"])


def parse(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, dict[str, Any]]:
    """Parse a command without running it; return the exit code and the values of its options."""
    from typer.core import TyperCommand

    import boolit.cli._app as app
    from boolit.lab.common import plugins

    values: dict[str, Any] = {}
    monkeypatch.setattr(plugins, "load_plugins", lambda _: None)
    monkeypatch.setattr(TyperCommand, "invoke", lambda _, context: values.update(context.params), raising=False)
    return app.run(arguments), values


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_commands_are_what_boolit_takes(page: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Check options and their values, studies and profiles. Words in capitals, such as STUDY, are placeholders."""
    from boolit.lab.catalogue import list_studies

    profiles = {study["name"]: study["profiles"] for study in list_studies()}
    whole = [(arguments, True) for block in blocks(page, *SHELL) for arguments in commands(block.code)]
    named = [(arguments, False) for text in INLINE.findall(prose(page)) for arguments in commands(" ".join(text.split()))]
    for arguments, complete in [*whole, *named]:
        code, values = parse(arguments[: arguments.index("…")] if "…" in arguments else arguments, monkeypatch)
        error = capfd.readouterr().err
        if not complete and re.search("Missing|requires an argument", error):  # part of a sentence, as `boolit run --hparams`
            continue
        assert code == 0, f"{page.name}: boolit {shlex.join(arguments)}: {error}"
        study = values.get("study")
        if study and not study.endswith(".toml") and not study.isupper():
            assert values.get("profile") in (None, *profiles[study]), f"{page.name}: {study} has other profiles"


def test_the_plugin_and_the_study_of_the_page_on_extending_run_together(tmp_path: Path) -> None:
    page = DOCS / "extend.md"
    (tmp_path / "mine.py").write_text(blocks(page, "python")[0].code, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(blocks(page, "toml")[0].code, encoding="utf-8")
    command = [sys.executable, "-m", "boolit", "--plugin", "mine.py", "run", "mine.toml", "--seeds", "2", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "soft_xnor" in done.stdout
    assert "Seconds of training" in (tmp_path / "out" / "report" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_relative_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_numbers_of_the_readme_come_from_the_evidence() -> None:
    readme = re.sub("<.*?>", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    runs = {name: pd.read_csv(DOCS / "evidence" / f"{name}.csv") for name in ("parity", "chorales", "covertype-2")}
    solved = runs["parity"]["value"].ge(0.99).groupby(runs["parity"]["activation"]).sum()
    assert f"| {solved['relu']} | XNORIL {solved['xnor_il']}, XNORAIL {solved['xnor_ail']} |" in readme
    quoted = {"chorales": (30_000, 1, "relu xnor_ail"), "covertype-2": (10_000, 2, "relu xnor_nail or_ail silu")}
    for name, (parameters, digits, specs) in quoted.items():
        table = runs[name][runs[name]["parameters"] == parameters].groupby("activation")["value"].agg(["mean", "sem"]) * 100
        for mean, error in table.loc[specs.split()].itertuples(index=False):
            assert f"{mean:.{digits}f} ± {error:.{digits}f} %" in readme
