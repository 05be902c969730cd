"""Saved models: a network with the preparation of its table, in one safetensors file, for use without the lab.

Importing this costs nothing; numpy and safetensors are imported by the first `load`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boolit.saved.model import SavedModel

__all__ = ["SavedModelError", "load"]


class SavedModelError(ValueError):
    """A file that is no saved model, or a table it cannot read: one sentence that names the value, the rule and the fix.

    Example:
        >>> try:
        ...     load("no such file")
        ... except SavedModelError as error:
        ...     print(error)
        there is no saved model no such file; check the path
    """


def load(path: str | os.PathLike[str]) -> SavedModel:
    """The model in a file that ``boolit compare`` wrote (``best.safetensors``); it needs no lab.

    Nothing in the file at ``path`` is executed; one that is damaged or foreign is a `boolit.saved.SavedModelError`, which is a
    ValueError.

    Example:
        >>> import tempfile
        >>> from boolit.saved.columns import Column
        >>> from boolit.saved.file import ModelDescription, build_network
        >>> from boolit.saved.model import SavedModel
        >>> description = ModelDescription((Column("size", "number", 0.0),), "kind", "classify", ("ant", "bee"), "or_ail", (8,))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     network = build_network(1, (8,), 1, "or_ail", in_unit=False).eval()
        ...     SavedModel(network, description).save(f"{folder}/best.safetensors")
        ...     model = load(f"{folder}/best.safetensors")
        >>> model.columns, model.classes, model.predict({"size": [1.5, None, 3.0]}).shape
        (['size'], ['ant', 'bee'], (3,))
    """
    from boolit.saved.model import SavedModel

    return SavedModel.load(path)
