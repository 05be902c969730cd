"""README and docs/: Python runs as it stands, commands and studies are what boolit takes, links lead somewhere.

The blocks of README.md are pasted one by one, so each runs alone. Those of a page of the site are one program, top to bottom.
Pages with cells, notebooks and the gallery run when the site is built.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

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
LINK = re.compile(r"(?<!`)\]\(<?([^)>]+)>?\)|<(https?:[^>]+)>")
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
            compile(block.code, str(page), "exec")  # it reads what a longer command wrote
        elif block.language == "python":
            execute(block, names)
        elif block.language == "toml":
            check_study(block, tmp_path)
        else:
            for arguments in commands(block.code):
                subprocess.run([sys.executable, "-m", "boolit", *arguments], check=True)


def check_study(block: Block, folder: Path) -> None:
    """A whole study is read as `boolit run` reads it; of a part, the data and the model are."""
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
    """Exit code and values of a command that is parsed as `boolit` parses it, and not run."""
    from typer.core import TyperCommand

    import boolit.cli._app as app
    from boolit.lab.common import plugins

    values: dict[str, Any] = {}
    monkeypatch.setattr(plugins, "load_plugins", lambda _: None)
    monkeypatch.setattr(TyperCommand, "invoke", lambda _, context: values.update(context.params), raising=False)
    return app.run(arguments), values


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_commands_are_what_boolit_takes(page: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Names and values of options; studies and their profiles, too. Words in capitals, as STUDY, stand for something."""
    from boolit.lab.studies import load_study

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
            assert values.get("profile") in (None, *load_study(study).profiles), f"{page.name}: {study} has other profiles"


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for inside, outside in LINK.findall(prose(page)):
        target = inside or outside
        if re.match(r"\w+:", target):
            parts = urlsplit(target)
            assert parts.scheme == "https", f"{page.name} links to {target}"
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.netloc), f"{page.name} links to {target}"
            assert not re.search(r"\s", target), f"{page.name} links to {target}"
            continue
        name, _, anchor = target.partition("#")
        file = page if not name else page.parent / name
        if "auto_examples" in file.parts:  # its pages are made of these
            file = DOCS / "examples" / ("" if file.stem == "index" else f"{file.stem}.py")
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in slugs(file), f"{page.name} links to {target}"


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
