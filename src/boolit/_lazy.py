"""Names of a package that are imported when they are first used, so that ``boolit --help`` need not wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_when_used(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__`` (PEP 562): each name is an attribute of the module it is mapped to, or that module itself.

    Example:
        >>> import boolit._lazy
        >>> import_when_used("boolit._lazy", {"pi": "math"})("pi") == boolit._lazy.pi
        True
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        found = module if module.__name__ == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, found)  # the next use finds it there
        return found

    return load
