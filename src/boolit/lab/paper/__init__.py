"""The paper: its printed tables, the claims of its text, checks of its numbers, and its figures."""

from boolit.lab.paper.printed import PrintedCell, frame, labels, table, table_rows, tables

__all__ = ["PrintedCell", "frame", "labels", "table", "table_rows", "tables"]
