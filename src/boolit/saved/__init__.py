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
    """One sentence that names the value, the rule and the fix."""


def load(path: str | os.PathLike[str]) -> SavedModel:
    """The model in a file that ``boolit compare`` wrote (``best.safetensors``).

    Nothing in the file is executed; one that is damaged or foreign is a `SavedModelError` (a ValueError).
    """
    from boolit.saved.model import SavedModel

    return SavedModel.load(path)
