"""What numbers rest on that is not what the paper used, to be said wherever they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boolit.lab.runs import Record

ORIGINS = {"reconstructed": "reconstructed encoder weights", "own": "encoder weights of an own file"}


def provenance(records: Sequence[Record]) -> str:
    """Whose weights the encoder behind some runs had, if not the published ones; nothing for other runs."""
    tables = (record.config.get("data") for record in records)
    origins = {str(table.get("origin")) for table in tables if isinstance(table, Mapping)}
    return ", ".join(ORIGINS[origin] for origin in sorted(origins & ORIGINS.keys()))
