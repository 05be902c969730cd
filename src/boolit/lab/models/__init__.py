"""Model families: one file or folder each. Any module that calls `register` adds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from boolit.lab.common.registry import Registry
from boolit.lab.models.base import Family, Stacked
from boolit.lab.runs import RunConfig

__all__ = ["MODELS", "Family", "Stacked", "family", "family_type", "register", "restore"]

MODELS: Registry[Family] = Registry(
    "model",
    {
        "cnn": f"{__name__}.cnn:Cnn",
        "head": f"{__name__}.mlp:Head",
        "mlp": f"{__name__}.mlp:Mlp",
        "preact-resnet": f"{__name__}.preact_resnet:PreactResnet",
        "sran": f"{__name__}.sran:Sran",
        "tmn": f"{__name__}.tmn:Tmn",
    },
)
FamilyType = TypeVar("FamilyType", bound=Family)


def register(kind: type[FamilyType]) -> type[FamilyType]:
    """Makes a family of networks known by the default of its field ``name``, for the ``[model]`` table: a class decorator.

    Args:
        kind: a subclass of `Family`; a name that one of boolit's own has is a ValueError.

    Example:
        >>> from boolit.lab import register_model
        >>> from boolit.lab.models.mlp import Mlp
        >>> @register_model
        ... class Pyramid(Mlp):
        ...     name: str = "pyramid"
        ...
        ...     def widths(self, size, depth):
        ...         return [size // 2**layer for layer in range(depth)]
        >>> family({"name": "pyramid", "normalisation": "batch"}).widths(64, depth=3)
        [64, 32, 16]
    """
    return MODELS.register(kind)


def family(table: Mapping[str, Any]) -> Family:
    """The family a ``[model]`` table names, its options checked.

    Example:
        >>> family({"name": "mlp", "normalisation": "batch"}).widths(32, depth=2)
        [32, 32]
    """
    return family_type(table.get("name")).model_validate(dict(table))


def family_type(name: object) -> type[Family]:
    """The class of the family with a name."""
    return MODELS.get(name)


def restore(config: RunConfig, weights: Mapping[str, Tensor]) -> Stacked:
    """The network of one finished run, from its configuration and its weights; in evaluation mode.

    It takes ``(1, batch, …)``, as a cohort of one run.
    """
    model = family(config.model).build(1, config.inputs, config.outputs, config.width, config.activation)
    model.load_state_dict({name: value.unsqueeze(0) for name, value in weights.items()})
    return model.eval()
