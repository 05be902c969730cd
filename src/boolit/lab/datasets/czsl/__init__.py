"""Compositional zero-shot learning: pairs of an attribute and an object, and networks that score them (a:czsl)."""
