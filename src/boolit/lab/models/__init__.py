"""Model families, one file each. A plug-in adds one with `register`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SerializeAsAny
from torch import Tensor, nn

from boolit.lab.common.plugins import Registry
from boolit.lab.models.base import Family, Stacked

__all__ = ["MODELS", "AnyFamily", "Family", "Stacked", "family", "family_type", "register", "restore"]

MODELS: Registry[type[Family]] = Registry(
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
family_type = MODELS.get
FamilyType = TypeVar("FamilyType", bound=Family)


def register(kind: type[FamilyType]) -> type[FamilyType]:
    """Register a model family under the default of its field ``name``, for the ``[model]`` table of studies.

    Args:
        kind: a subclass of `Family`. Names of built-in families raise ValueError.

    Example:
        >>> from boolit.lab import register_model
        >>> from boolit.lab.models.mlp import Mlp
        >>> @register_model
        ... class Pyramid(Mlp):
        ...     name: str = "pyramid"
        ...
        ...     def widths(self, size, depth):
        ...         return [size // 2**layer for layer in range(depth)]
        >>> family({"name": "pyramid", "normalization": "batch"}).widths(64, depth=3)
        [64, 32, 16]
    """
    return MODELS.add(kind.model_fields["name"].default, kind)


def family(table: Mapping[str, Any] | Family) -> Family:
    """Return the family that a ``[model]`` table names, with validated options. A family is returned as it is.

    Example:
        >>> family({"name": "mlp", "normalization": "batch"}).widths(32, depth=2)
        [32, 32]
    """
    if isinstance(table, Family):
        return table
    if not isinstance(table, Mapping):
        raise ValueError(f'expected a table that names a model, such as {{name = "mlp"}}, got {table!r}')
    return family_type(table.get("name")).model_validate(dict(table))


AnyFamily = Annotated[SerializeAsAny[Family], BeforeValidator(family)]


def restore(
    model: Family, inputs: Sequence[int], outputs: int, widths: Sequence[int], spec: str, weights: Mapping[str, Tensor]
) -> nn.Module:
    """Return the network of a finished run with its saved weights, in evaluation mode."""
    network = model.network(inputs, outputs, widths, spec)
    network.load_state_dict(weights)  # batch norms fill in the count of batches, which stacked weights do not have
    return network.eval()
