"""The user's own tables: read in batches, profiled column by column, and prepared for networks."""

from boolit.lab.datasets.tables.prepare import TableSpec, prepare_table, table_digest
from boolit.lab.datasets.tables.prepared import PreparedTable
from boolit.lab.datasets.tables.reading import TableFile, open_table

__all__ = ["PreparedTable", "TableFile", "TableSpec", "open_table", "prepare_table", "table_digest"]
