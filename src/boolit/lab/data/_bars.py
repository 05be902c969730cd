"""Download bars: what pooch reports to, drawn by rich, on a terminal only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class FileBar:
    """The bar of one file. pooch sets ``total`` and calls the rest, as it would with tqdm's bars."""

    def __init__(self, bars: Progress, file: str) -> None:
        self._bars, self._task = bars, bars.add_task(file, total=None)

    @property
    def total(self) -> float | None:
        """The bytes to come; unknown until the server says."""
        return self._bars.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._bars.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        """So many bytes more have come."""
        self._bars.advance(self._task, size)

    def reset(self) -> None:
        """Begins anew; pooch does so before it fills the bar."""
        self._bars.update(self._task, completed=0)

    def close(self) -> None:
        """The file is complete."""


class DownloadBars(AbstractContextManager["DownloadBars"]):
    """The bars of some files, on the error stream."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(30),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)

    def __enter__(self) -> DownloadBars:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def file(self, name: str) -> FileBar:
        """A further bar."""
        return FileBar(self._bars, name)
