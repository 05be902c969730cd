"""The reference is complete: every public name is described, has an example that runs, and a place in docs/reference.

The examples of the docstrings run with `pytest --pyargs boolit`; here they are counted.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

import boolit
from boolit import lab

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
MODULES = ("boolit", "boolit.functional", "boolit.nn", "boolit.sklearn", "boolit.lab")
RETURNED = ("boolit.tables.TablePreparation",)  # part of what boolit.load returns
NOT_RUN: set[str] = set()
ARRAYS = re.compile(r"Tensor|Array|Floats")
BLOCK = re.compile(r"^```{eval-rst}\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. (?P<kind>[\w:]+):: (?P<name>[\w.]+)(?:\(\))?\n(?P<body>(?:(?: +.*)?\n)*)", re.MULTILINE)


def resolve(name: str) -> Any:
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


PUBLIC = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__] + list(RETURNED)
OBJECTS = {name: resolve(name) for name in PUBLIC}
CONSTANTS = [name for name, found in OBJECTS.items() if not callable(found) and not isinstance(found, ModuleType)]
CLASSES = {name: found for name, found in OBJECTS.items() if isinstance(found, type)}


class Place(NamedTuple):
    """A directive of a page."""

    kind: str
    body: str

    def shows(self, member: str) -> bool:
        """Whether it documents a member of its class."""
        found = re.search(r":members:(.*)", self.body)
        excluded = re.search(r":exclude-members:(.*)", self.body)
        chosen = found is not None and (not found[1].strip() or member in re.split(r"[ ,]+", found[1].strip()))
        return chosen and not (excluded and member in re.split(r"[ ,]+", excluded[1].strip()))


def read_places() -> dict[str, Place]:
    places: dict[str, Place] = {}
    for page in sorted(PAGES.glob("*.md")):
        module = ""
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for found in DIRECTIVE.finditer(block):
                if found["kind"] in ("currentmodule", "automodule"):
                    module = f"{found['name']}."
                if found["kind"] != "currentmodule":
                    whole = found["name"] if found["name"].startswith("boolit") else module + found["name"]
                    assert whole not in places, f"{whole} is in the reference twice"
                    places[whole] = Place(found["kind"], found["body"])
    return places


PLACES = read_places()


def examples(text: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(text)


def describe(found: object) -> str:
    """A docstring, and of a class that of its parameters too."""
    own = inspect.getdoc(found) or ""
    first = inspect.getdoc(found.__init__) if isinstance(found, type) and "Args:" in (found.__init__.__doc__ or "") else ""
    return f"{own}\n\n{first}"


def members(kind: type) -> Iterator[tuple[str, object]]:
    """The public methods and properties that boolit defines; what torch, pydantic or scikit-learn define, they describe."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("boolit")]
    foreign = {name for base in kind.__mro__ if base not in ours for name in vars(base)} - {"forward"}
    fields = getattr(kind, "__dataclass_fields__", ())
    for name in dict.fromkeys(name for base in ours for name in vars(base) if name not in fields):
        found = inspect.getattr_static(kind, name)
        if not name.startswith("_") and name not in foreign and _is_member(found):
            yield name, found


def _is_member(found: object) -> bool:
    return inspect.isfunction(found) or isinstance(found, (property, cached_property, classmethod, staticmethod))


def function_of(member: Any) -> Any:
    for attribute in ("fget", "func", "__func__"):
        member = getattr(member, attribute, member)
    return member


def root(kind: type, member: str) -> type:
    """The class that first defines a member."""
    return next(base for base in reversed(kind.__mro__) if base.__module__.startswith("boolit") and member in vars(base))


MEMBERS = {f"{name}.{member}": (kind, found) for name, kind in CLASSES.items() for member, found in members(kind)}


def has_arrays(found: Any) -> bool:
    """Whether a tensor or an array enters or leaves, by the annotations."""
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        return True
    if isinstance(found, type) and issubclass(found, Exception):
        return False
    signature = inspect.signature(found)
    own = [parameter.annotation for parameter in signature.parameters.values()]
    return any(ARRAYS.search(str(annotation)) for annotation in [*own, signature.return_annotation])


def test_there_is_something_to_count() -> None:
    assert len(PUBLIC) > 105
    assert len(MEMBERS) > 100
    assert {"boolit.nn.Gate.forward", "boolit.lab.Store.records", "boolit.nn.Activation.map"} <= MEMBERS.keys()


def test_every_public_name_has_a_place_and_every_place_a_name() -> None:
    assert set(PUBLIC) - PLACES.keys() == set(), "add these to docs/reference"
    others = PLACES.keys() - set(PUBLIC)
    assert {name for name in others if not name.startswith("boolit.logic.") and name not in MODULES} == set()
    for name in others:
        importlib.import_module(name) if PLACES[name].kind == "automodule" else resolve(name)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_shown_described_and_used(name: str) -> None:
    kind, found = MEMBERS[name]
    whole, _, member = name.rpartition(".")
    bases = {other: public for public, other in CLASSES.items()}
    first = root(kind, member)
    assert PLACES[bases.get(first, whole)].shows(member), f"give {whole} in docs/reference the member {member}"
    text = inspect.getdoc(function_of(found)) or inspect.getdoc(getattr(kind, member)) or ""
    summary = text.partition("\n\n")[0]
    assert summary.endswith("."), summary
    assert "\n" not in summary
    if isinstance(found, (property, cached_property)):
        assert ": " not in summary, "Sphinx takes what stands before a colon for the type of a property"
    shapes = describe(kind) + describe(first) + text
    assert not has_arrays(function_of(found)) or "Shape: " in shapes
    used = [*examples(text), *examples(describe(kind)), *examples(describe(first))]
    call = r"\(" if member == "forward" else rf"\.{member}\b"
    assert any(re.search(call, example.source) for example in used), f"show {member} in the example of {whole}"


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in CONSTANTS])
def test_every_docstring_says_enough(name: str) -> None:
    found = OBJECTS[name]
    text, own = describe(found), name.rpartition(".")[2]
    summary = text.strip().partition("\n\n")[0]
    assert summary.endswith("."), f"{name} begins with {summary!r}"
    assert "\n" not in summary
    shown = examples(text)
    assert any(example.want for example in shown), f"{name} has no example that shows what comes out"
    if isinstance(found, ModuleType):
        return
    names = [own, *(rf"\.{member}" for member, _ in members(found))] if isinstance(found, type) else [own]
    names += [rf"\.{field}" for field in getattr(found, "__dataclass_fields__", ())]
    assert any(re.search(rf"(?:{'|'.join(names)})\b", example.source) for example in shown), f"no example uses {name}"
    if not (isinstance(found, type) and issubclass(found, Exception)):
        parameters = inspect.signature(found).parameters.values()
        plain = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        assert [p for p in plain if not re.search(rf"\b{p}\b", text)] == [], f"{name} does not say what these are"
    assert not has_arrays(found) or "Shape: " in text, f"{name} does not say which shapes go in and out"


def test_all_examples_are_run() -> None:
    texts = {name: describe(found) for name, found in OBJECTS.items()}
    texts |= {name: inspect.getdoc(function_of(found)) or "" for name, (_, found) in MEMBERS.items()}
    skipped = {name for name, text in texts.items() if any(doctest.SKIP in e.options for e in examples(text))}
    assert skipped == NOT_RUN


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_described_in_the_page(name: str) -> None:
    """A constant has no docstring of its own; its example is run here."""
    text = inspect.cleandoc(PLACES[name].body)
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert any(name.rpartition(".")[2] in example.source for example in test.examples)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 0


def test_the_face_of_the_lab_is_the_same_for_type_checkers_and_at_run_time() -> None:
    tree = ast.parse(Path(lab.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    found = {
        alias.asname or alias.name: getattr(importlib.import_module(str(node.module)), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*found, "run_study"]) == sorted(lab.__all__) == sorted(dir(lab))
    assert all(getattr(lab, name) is value for name, value in found.items())
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        lab.nothing  # noqa: B018
    assert boolit.__all__ == dir(boolit)


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    code = "import sys; sys.modules['pydantic'] = None\nfrom boolit.lab import Metric"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ImportError: boolit.lab needs pydantic: pip install 'boolit[lab]'"


def test_importing_the_lab_loads_no_room_before_it_is_used() -> None:
    code = (
        "import sys, boolit.lab\n"
        "print([name for name in sys.modules if name.startswith('boolit.lab.')])\n"
        "boolit.lab.Metric\n"
        "print(sorted(name for name in sys.modules if name.startswith('boolit.lab.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['boolit.lab.runs']"]
