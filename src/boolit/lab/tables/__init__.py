"""Tables of the user's own: reading them in pieces, telling what their columns hold, and preparing them for networks."""

from boolit.lab.tables.prepared import Prepared
from boolit.lab.tables.preparing import prepared
from boolit.lab.tables.reading import TableFile, open_table
from boolit.lab.tables.wanted import Wanted, digest_of

__all__ = ["Prepared", "TableFile", "Wanted", "digest_of", "open_table", "prepared"]
