"""Load plugins, which register activations, datasets, optimizers, metrics and more; and `Registry`, where they register them.

A plugin is a Python file or module. The option ``--plugin`` names it, or the environment variable BOOLIT_PLUGINS (several are
separated as in PATH), or an installed package with an entry point in the group ``boolit.plugins``.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar, cast

from boolit.errors import UserError, one_line
from boolit.lab.common.files import cache_key, file_digest

T = TypeVar("T")
S = TypeVar("S")
_LOADED: dict[str, str] = {}  # names of loaded plugins, with the hash of their file if they have one


def load_plugins(named: Iterable[str] = ()) -> None:
    """Load the plugins of installed packages, of BOOLIT_PLUGINS and of ``named``, each once."""
    for entry in entry_points(group="boolit.plugins"):
        _load(f"{entry.name} = {entry.value}", entry.load)
    for name in [*os.environ.get("BOOLIT_PLUGINS", "").split(os.pathsep), *named]:
        if name.strip():
            _load(name.strip(), partial(_import, name.strip()))


def loaded_plugins() -> dict[str, str]:
    """Return every loaded plugin with the hash of its file; runs record it."""
    return dict(_LOADED)


def named_plugins() -> list[str]:
    """Return the loaded plugins that only ``--plugin`` names."""
    elsewhere = os.environ.get("BOOLIT_PLUGINS", "").split(os.pathsep)
    return [name for name in _LOADED if " = " not in name and name not in elsewhere]


def _load(name: str, load: Callable[[], object]) -> None:
    if name in _LOADED:
        return
    try:
        loaded = load()
    except (Exception, SystemExit) as error:
        raise UserError(f"the plugin {name} cannot be loaded: {one_line(error)}") from error
    module = loaded if isinstance(loaded, ModuleType) else sys.modules.get(str(getattr(loaded, "__module__", "")))
    file = getattr(module, "__file__", None)
    _LOADED[name] = file_digest(Path(file), "plugin")[:16] if file else ""


def _import(name: str) -> ModuleType:
    """Import a file if the name ends in .py or contains a folder, otherwise a module."""
    if not (name.endswith(".py") or "/" in name or os.sep in name) and find_spec(name.partition(".")[0]):
        if (module := import_module(name)).__file__ is None:
            raise UserError("it is a folder without code; give the path of a .py file, or the name of a module")
        return module
    path = Path(name).resolve()
    # pydantic looks up the module of a class by name, so it needs a unique one.
    unique = f"boolit_plugin_{path.stem}_{cache_key(path)}"
    if unique in sys.modules:
        return sys.modules[unique]
    spec = spec_from_file_location(unique, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError("there is no such .py file; give the path of one, or the name of a module")
    module = sys.modules[unique] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[unique]
        raise
    return module


class Registry(Generic[T]):
    """Entries of one kind by name; ``built_in`` maps names to ``module:attribute``, imported on first use."""

    def __init__(self, what: str, built_in: Mapping[str, str]) -> None:
        self.what = what
        self.built_in = dict(built_in)
        self.registered: dict[str, T] = {}

    def add(self, name: str, entry: S) -> S:
        """Register an entry, and return it for decorators. The name of a built-in entry raises ValueError."""
        if name in self.built_in:
            raise ValueError(f"{name!r} is already the name of a {self.what} of boolit; choose another name")
        self.registered[name] = entry  # type: ignore[assignment]  # S is a T, which a type variable cannot say
        return entry

    def names(self) -> list[str]:
        """Return all names."""
        return sorted({*self.built_in, *self.registered})

    def get(self, name: object) -> T:
        """Return the entry with a name; the error for an unknown name suggests close ones."""
        known = self.names()
        if not isinstance(name, str) or name not in known:
            near = difflib.get_close_matches(str(name), known, n=2)
            raise ValueError(f"unknown {self.what} {name!r}; choose {' or '.join(near) or 'among ' + ', '.join(known)}")
        if name in self.registered:
            return self.registered[name]
        module, _, attribute = self.built_in[name].partition(":")
        return cast(T, getattr(import_module(module), attribute))
