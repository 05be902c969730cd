"""Plugins, which register activations, datasets or models before a command runs, and the registries of datasets and models.

A plugin is a Python file or module. It is named by ``--plugin``, by the variable BOOLIT_PLUGINS (several separated by the path
separator), or by an installed package as an entry point of the group ``boolit.plugins``.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Generic, TypeVar

from boolit.errors import UserError, one_line
from boolit.lab.common.files import hash_file

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T", bound="BaseModel")
S = TypeVar("S", bound="BaseModel")
_LOADED: dict[str, str] = {}  # names of loaded plugins, with the hash of their file if they have one


def load_plugins(named: Iterable[str] = ()) -> None:
    """Load the plugins of installed packages, of BOOLIT_PLUGINS and of ``named``, each once."""
    for entry in entry_points(group="boolit.plugins"):
        _load(f"{entry.name} = {entry.value}", entry.load)
    for name in [*os.environ.get("BOOLIT_PLUGINS", "").split(os.pathsep), *named]:
        if name.strip():
            load_plugin(name.strip())


def load_plugin(name: str) -> None:
    """Load a plugin: a file if its name ends in .py or contains a folder, otherwise a module."""
    if not (name.endswith(".py") or "/" in name or os.sep in name):
        _load(name, lambda: import_module(name))
        return
    path = Path(name).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"the plugin {name} is not a .py file; give the path of one, or the name of a module")
    _load(name, lambda: _run_file(path))


def loaded_plugins() -> dict[str, str]:
    """Return every loaded plugin with the hash of its file; runs record it."""
    return dict(_LOADED)


def _load(name: str, load: Callable[[], object]) -> None:
    if name in _LOADED:
        return
    try:
        loaded = load()
    except (Exception, SystemExit) as error:
        raise UserError(f"the plugin {name} cannot be loaded: {one_line(error)}") from error
    module = loaded if isinstance(loaded, ModuleType) else sys.modules.get(str(getattr(loaded, "__module__", "")))
    file = getattr(module, "__file__", None)
    _LOADED[name] = hash_file(Path(file))[:16] if file else ""


def _run_file(path: Path) -> ModuleType:
    # pydantic looks up the module of a class by name, so it needs a unique one.
    name = f"boolit_plugin_{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class Registry(Generic[T]):
    """Classes by the default of their field ``name``; ``built_in`` maps names to ``module:Class``, imported on first use."""

    def __init__(self, what: str, built_in: Mapping[str, str]) -> None:
        self.what = what
        self.built_in = dict(built_in)
        self.registered: dict[str, type[T]] = {}

    def register(self, kind: type[S]) -> type[S]:
        """Register a class under the default of its field ``name``."""
        name = kind.model_fields["name"].default
        if name in self.built_in:
            raise ValueError(f"{name!r} is already a {self.what} of boolit; choose another name")
        self.registered[name] = kind  # type: ignore[assignment]  # S is a T, which a type variable cannot say
        return kind

    def names(self) -> list[str]:
        """Return all names."""
        return sorted({*self.built_in, *self.registered})

    def get(self, name: object) -> type[T]:
        """Return the class with a name; the error for an unknown name suggests close ones."""
        known = self.names()
        if not isinstance(name, str) or name not in known:
            near = difflib.get_close_matches(str(name), known, n=2) or known
            raise ValueError(f"unknown {self.what} {name!r}; choose {' or '.join(near)}")
        if name in self.registered:
            return self.registered[name]
        module, _, kind = self.built_in[name].partition(":")
        result: type[T] = getattr(import_module(module), kind)
        return result
