"""Other people's activations, datasets and models: files or modules that register them, loaded before a command runs.

A plugin is a Python file or an importable module. It is named by ``--plugin``, by the variable BOOLIT_PLUGINS (several with
the path separator between), or by an installed package as an entry point of the group ``boolit.plugins``.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from boolit.lab.common.errors import UserError, one_line
from boolit.lab.common.files import hash_file

VARIABLE, GROUP = "BOOLIT_PLUGINS", "boolit.plugins"
DIGEST_DIGITS = 16

_LOADED: dict[str, str] = {}  # what a plugin was called by: the hash of its file, or nothing where it has none


def load_plugins(named: Iterable[str] = ()) -> None:
    """Loads the plugins of installed packages, those of BOOLIT_PLUGINS and those that are named, each once."""
    for entry in entry_points(group=GROUP):
        _load(f"{entry.name} = {entry.value}", entry.load)
    from_variable = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name.strip()]
    for name in [*from_variable, *named]:
        load_plugin(name.strip())


def load_plugin(name: str) -> None:
    """Loads one plugin: a file if its name ends in .py or has a folder in it, a module otherwise."""
    if name.endswith(".py") or "/" in name or os.sep in name:
        path = Path(name).resolve()
        if not path.is_file():
            raise UserError(f"the plugin {name} is no file; give the path of a .py file or the name of a module")
        _load(name, lambda: _run_file(path))
    else:
        _load(name, lambda: import_module(name))


def loaded_plugins() -> dict[str, str]:
    """Every plugin loaded so far with the hash of its file: its name says where it is, the hash what it was.

    Part of a run's record, so that results of a plugin that was changed meanwhile can be told apart.
    """
    return dict(_LOADED)


def _load(name: str, load: Callable[[], object]) -> None:
    if name in _LOADED:
        return
    try:
        found = load()
    except (Exception, SystemExit) as error:
        raise UserError(f"the plugin {name} cannot be loaded: {one_line(error)}") from error
    _LOADED[name] = _digest(found)


def _digest(found: object) -> str:
    """The hash of the file a module, or a function or class that an entry point names, is from."""
    module = found if isinstance(found, ModuleType) else sys.modules.get(str(getattr(found, "__module__", "")))
    file = getattr(module, "__file__", None)
    return hash_file(Path(file))[:DIGEST_DIGITS] if file else ""


def _run_file(path: Path) -> ModuleType:
    """The module of a file, run once under a name of its own; pydantic looks its classes' module up by that name."""
    name = f"boolit_plugin_{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path.name} is no Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
