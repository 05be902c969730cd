"""A registry of classes by name; built-in classes are imported on first use."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)


class Registry(Generic[T]):
    """Classes by the default of their field ``name``; ``built_in`` maps names to ``module:Class``."""

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
