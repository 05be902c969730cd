"""Tables of the user's own: reading them in pieces, telling what their columns hold, and preparing them for networks."""

from boolit.lab.datasets.tables.prepare import Wanted, digest_of, prepared
from boolit.lab.datasets.tables.prepared import Prepared
from boolit.lab.datasets.tables.reading import TableFile, open_table

__all__ = ["Prepared", "TableFile", "Wanted", "digest_of", "open_table", "prepared"]
