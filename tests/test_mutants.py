"""benchmarks/mutants.py on a package of a few lines, whose tests notice some errors and not others."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "mutants.py"
_spec = importlib.util.spec_from_file_location("mutants", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
mutants = importlib.util.module_from_spec(_spec)
sys.modules["mutants"] = mutants  # where dataclasses look for it
_spec.loader.exec_module(mutants)

UNSEEN = re.compile(mutants.UNSEEN, re.IGNORECASE)

SUMS = '''"""σ: two bytes before the first change of a line."""

CHUNK = 3


def noticed(σ: int, other: int) -> int:
    """Doubles 3 and adds 1.

    >>> noticed(3, 1)
    7
    """
    return (
        σ * 2 +  other  # the two spaces and this comment stay
    )
'''
PARTS = """def unnoticed(value: float) -> float:
    print(1)
    return value - 0.5
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository: ``room/sums.py`` has a doctest and a test that imports it, ``room/parts.py`` is only called."""
    config = '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib --doctest-modules"\n'
    files = {
        "pyproject.toml": config,
        "src/tiny/__init__.py": "",
        "src/tiny/room/__init__.py": "",
        "src/tiny/room/sums.py": SUMS,
        "src/tiny/room/parts.py": PARTS,
        "tests/test_tiny.py": "from tiny.room.parts import unnoticed\n\ndef test_it_runs():\n    unnoticed(1.0)\n",
    }
    for name, text in files.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # hypothesis and others, which take a second
    return tmp_path / "repository"


def changes(folder: Path, source: str) -> dict[str, str]:
    """Every mutant of a source, as ``old → new``, with the whole source it gives."""
    path = folder / "changed.py"
    path.write_text(source)
    found = mutants.find_mutants(folder, path, UNSEEN)
    return {f"{mutant.old} → {mutant.new}": mutant.splice(path.read_bytes()).decode() for mutant in found}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a + b", "a - b"),
        ("(a % b) ** c", "a % b * c"),
        ("a & b == c", "a | b == c"),
        ("a < b < c", "a <= b < c"),
        ("a is None", "a is not None"),
        ("(a and b) == c", "(a or b) == c"),
        ("a * (b or c)", "a * (b and c)"),
        ("c and not (a or b)", "c and (a or b)"),
        ("b if a else c", "b if not a else c"),
        ("a[-1]", "a[-2]"),
        ("f(a, flag=True)", "f(a, flag=False)"),
        ("a.amax(0)", "a.amin(0)"),
        ("min(a, b)", "max(a, b)"),
        ("25.0", "50.0"),
    ],
)
def test_an_expression_becomes_what_its_operator_says(tmp_path: Path, old: str, new: str) -> None:
    trees = [ast.dump(ast.parse(text)) for text in changes(tmp_path, f"def f(a, b, c):\n    x = {old}\n").values()]
    assert ast.dump(ast.parse(f"def f(a, b, c):\n    x = {new}\n")) in trees


def test_statements_are_deleted_and_results_replaced(tmp_path: Path) -> None:
    source = "def f(a) -> int:\n    a.append(b)\n    a += b\n    return (a,\n        b)\n\ndef g(a) -> None:\n    return a\n"
    assert changes(tmp_path, source) == {
        "a.append(b) → pass": source.replace("a.append(b)", "pass"),
        "a += b → pass": source.replace("a += b", "pass"),
        "(a,\n        b) → None": source.replace("(a,\n        b)", "None"),
    }


def test_what_no_test_could_notice_is_left_alone(tmp_path: Path) -> None:
    lines = [
        "from __future__ import annotations",
        "Size = Literal[1, 2] | None",
        "__all__ = ['f'] + names",
        "CHUNK_SIZE = 4 * 1024",
        "if TYPE_CHECKING: x = 1",
        "@lru_cache(maxsize=8)",
        "def f(a: Literal[1], progress: bool = True, *, timeout: float = 3.0) -> Literal[2]:",
        "    '''A text of 1 + 1.'''",
        "    assert a > 1",
        "    warnings.warn('a', stacklevel=2)",
        "    zip(a, a, strict=True)",
        "    for part in split(a, chunk=4): wait(part // threads)",
        "    if a: raise ValueError(f'{a + 1} of ' + str(1 + 1))",
        "class C:",
        "    def __repr__(self) -> str:",
        "        return 'a' * 3",
    ]
    assert list(changes(tmp_path, "\n".join(lines))) == [
        "zip(a, a, strict=True) → pass",
        "wait(part // threads) → pass",
        "a → (not a)",
    ]


def test_mutants_are_killed_or_survive_and_are_not_run_again(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    out = tmp_path / "out.json"
    command = ["--root", str(root), "--rooms", "room", "--count", "2", "--workers", "0", "--out", str(out)]
    assert mutants.main(command) == 1
    kept = json.loads(out.read_text())
    by_function = {result["function"]: result for result in kept.values()}
    assert by_function["noticed"]["status"] == "killed"
    assert by_function["noticed"]["by"].startswith("src/tiny/room/sums.py::")
    assert by_function["unnoticed"]["status"] == "survived"
    shown = capfd.readouterr().out
    assert "survived: src/tiny/room/parts.py:3 unnoticed" in shown
    assert json.loads(shown.splitlines()[-1]) == {"mutants": 2, "done": 2, "killed": 1, "survived": 1, "met": False}
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before

    for result in kept.values():
        result["by"] = "kept"
    out.write_text(json.dumps(kept))
    assert mutants.main(command) == 1
    assert json.loads(out.read_text()) == kept


def test_a_test_that_fails_in_any_case_kills_nothing(root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / "tests/test_broken.py").write_text("import tiny.room.parts\n\ndef test_broken():\n    assert False\n")
    only = ["--exclude", "^noticed$", "--first-stage-only", "--count", "1"]
    assert mutants.main(["--root", str(root), "--rooms", "room", "--out", str(tmp_path / "out.json"), *only]) == 1
    (result,) = json.loads((tmp_path / "out.json").read_text()).values()
    assert result["status"] == "passed the first tests"
    assert "left out: tests/test_broken.py::test_broken" in capfd.readouterr().out


def test_an_endless_loop_is_a_timeout(root: Path, tmp_path: Path) -> None:
    (root / "src/tiny/room/parts.py").write_text(
        "def unnoticed(value: float) -> None:\n    while value:\n        value -= value\n"
    )
    only = ["--exclude", "^noticed$", "--first-stage-only", "--limit", "1", "--count", "1"]
    assert mutants.main(["--root", str(root), "--rooms", "room", "--out", str(tmp_path / "out.json"), *only]) == 0
    (result,) = json.loads((tmp_path / "out.json").read_text()).values()
    assert (result["status"], result["operator"]) == ("timeout", "deletion")


def test_tests_of_another_package_are_no_result(root: Path, tmp_path: Path) -> None:
    (root / "elsewhere/tiny").mkdir(parents=True)
    (root / "elsewhere/tiny/__init__.py").touch()
    with (root / "pyproject.toml").open("a") as file:
        file.write('pythonpath = ["elsewhere"]\n')
    with pytest.raises(RuntimeError, match="another tiny"):
        mutants.main(["--root", str(root), "--rooms", "room", "--out", str(tmp_path / "out.json"), "--count", "1"])
    assert not (tmp_path / "out.json").exists()


def test_the_sample_of_a_file_stays_when_another_changes(root: Path) -> None:
    arguments = (root, ["room"], 2, 0, UNSEEN)
    first = mutants.sample(*arguments)
    assert [mutant.function for mutant in sorted(first, key=lambda mutant: mutant.file)] == ["unnoticed", "noticed"]
    (root / "src/tiny/room/sums.py").write_text(SUMS.replace("noticed", "renamed").replace("7", "9"))
    assert [mutant for mutant in first if mutant.function == "unnoticed"] == [
        mutant for mutant in mutants.sample(*arguments) if mutant.function == "unnoticed"
    ]
