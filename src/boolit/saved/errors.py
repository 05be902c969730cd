"""What is wrong with a saved model, or with the table it was given."""

from __future__ import annotations


class SavedModelError(ValueError):
    """One sentence that names the value, the rule and the fix."""
