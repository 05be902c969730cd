"""Model families: one file each. A file here, or any module that calls `register`, adds one."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from torch import Tensor

from boolit.lab.models._family import Family, Stacked

__all__ = ["Family", "Stacked", "family", "family_names", "family_type", "register", "restore"]

_FAMILIES: dict[str, type[Family]] = {}
F = TypeVar("F", bound=Family)


def register(kind: type[F]) -> type[F]:
    """Makes a family known under the default of its field ``name``, which none of boolit's own may have."""
    name = kind.model_fields["name"].default
    if not _built_in(kind) and name in _known() and _built_in(_known()[name]):
        raise ValueError(f"{name!r} is already a model of boolit; choose another name")
    _FAMILIES[name] = kind
    return kind


def family_names() -> list[str]:
    """Every model family there is."""
    return sorted(_known())


def family(table: Mapping[str, Any]) -> Family:
    """The family a ``[model]`` table names, its options checked.

    Example:
        >>> family({"name": "mlp", "normalisation": "batch"}).hidden(32, depth=2)
        [32, 32]
    """
    return family_type(table.get("name")).model_validate(dict(table))


def family_type(name: object) -> type[Family]:
    """The class of the family with a name."""
    known = _known()
    if not isinstance(name, str) or name not in known:
        near = difflib.get_close_matches(str(name), known, n=2) or sorted(known)
        raise ValueError(f"unknown model {name!r}; choose {' or '.join(near)}")
    return known[name]


def restore(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Stacked:
    """The network of one finished run, from its configuration and the weights kept of it; in evaluation mode.

    It takes ``(1, batch, …)``, as a cohort of one run.
    """
    model = family(config["model"]).build(1, config["inputs"], config["outputs"], config["width"], config["activation"])
    model.load_state_dict({name: value.unsqueeze(0) for name, value in weights.items()})
    return model.eval()


def _known() -> dict[str, type[Family]]:
    _import_all()
    return _FAMILIES


def _built_in(kind: type) -> bool:
    return kind.__module__.startswith(f"{__name__}.")


@lru_cache(maxsize=1)
def _import_all() -> None:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            import_module(f"{__name__}.{module.name}")
