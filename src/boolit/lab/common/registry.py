"""A registry of classes by name: boolit's own are known by name and imported when asked for, others register themselves."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)


class Registry(Generic[T]):
    """Classes by the default of their field ``name``.

    ``own`` says for each of boolit's own where it is, as ``module:Class``: none is imported before it is used.
    """

    def __init__(self, what: str, own: Mapping[str, str]) -> None:
        self.what = what
        self.own = dict(own)
        self.registered: dict[str, type[T]] = {}

    def register(self, kind: type[S]) -> type[S]:
        """Makes a class known under the default of its field ``name``, which none of boolit's own may have."""
        name = kind.model_fields["name"].default
        if name in self.own:
            raise ValueError(f"{name!r} is already a {self.what} of boolit; choose another name")
        self.registered[name] = kind  # type: ignore[assignment]  # S is a T, which a type variable cannot say
        return kind

    def names(self) -> list[str]:
        """Every name there is."""
        return sorted({*self.own, *self.registered})

    def get(self, name: object) -> type[T]:
        """The class with a name; an unknown one is refused with those near it."""
        known = self.names()
        if not isinstance(name, str) or name not in known:
            near = difflib.get_close_matches(str(name), known, n=2) or known
            raise ValueError(f"unknown {self.what} {name!r}; choose {' or '.join(near)}")
        if name in self.registered:
            return self.registered[name]
        module, _, kind = self.own[name].partition(":")
        found: type[T] = getattr(import_module(module), kind)
        return found
