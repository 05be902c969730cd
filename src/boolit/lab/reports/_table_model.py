"""A table of results, before it is known how it will be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# White text is easier to read than black on greys darker than this: their contrasts (WCAG) are equal at 54 % black.
DARK = 0.54


@dataclass(frozen=True)
class Marks:
    """The paper's marks: bold for the best, underlined for the top two, italic for no significant difference from the best."""

    bold: bool = False
    underlined: bool = False
    italic: bool = False

    def __str__(self) -> str:
        return " ".join(name for name in ("bold", "underlined", "italic") if getattr(self, name))


@dataclass(frozen=True)
class Cell:
    """What a cell says: a text, with a spread after it that is not marked, and a background from 0 (white) to 1 (black).

    ``data`` is what a machine should read instead: values by what follows the column's name, "" for the column itself.
    """

    text: str
    spread: str = ""
    marks: Marks = field(default_factory=Marks)
    shade: float | None = None
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def dark(self) -> bool:
        """Whether the text must be white."""
        return self.shade is not None and self.shade > DARK


@dataclass(frozen=True)
class Row:
    """An activation, its map, and a cell for each column."""

    activation: str
    map: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Activations by columns. ``notes`` say how to read it, ``background`` what the shades mean where they are shown."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    background: str = ""

    @property
    def heading(self) -> tuple[str, ...]:
        """The names of all columns, the first two included."""
        return ("activation", "map", *self.columns)
