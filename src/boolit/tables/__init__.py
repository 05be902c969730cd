"""Tables: read them, turn columns into features, split rows, check for identifiers and leaks, save and load models."""

try:
    from boolit.tables.model import load, save
    from boolit.tables.preparation import TablePreparation
    from boolit.tables.read import read_table
    from boolit.tables.splits import RowSplitter
except ModuleNotFoundError as error:
    if error.name not in ("pandas", "skops", "sklearn"):
        raise
    raise ImportError(f"boolit.tables needs {error.name}: pip install 'boolit[sklearn]'") from None

__all__ = ["RowSplitter", "TablePreparation", "load", "read_table", "save"]
