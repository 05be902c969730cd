"""Progress bars of a study: runs, and the epochs of the present cohort."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn

from boolit.lab.common.progress import progress_bars
from boolit.lab.training import Training


class StudyProgress(AbstractContextManager["StudyProgress"]):
    """Two bars on the error stream, or a line every ten seconds if it is not a terminal.

    Args:
        total: the runs of the plan.
        done: those that are in the store already.
        shown: False hides everything.
        console: defaults to the error stream.
    """

    def __init__(self, total: int, done: int = 0, shown: bool | None = None, console: Console | None = None) -> None:
        columns = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bars = progress_bars(*columns, shown=shown, console=console)
        self._study = self._bars.add_task("runs", total=total, completed=done)
        self._cohort = self._bars.add_task("epochs", total=None, visible=False)
        self._done = float(done)

    def __enter__(self) -> StudyProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def note(self, line: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def begin(self, cohort: str) -> None:
        """Start the bar of a cohort."""
        self._bars.reset(self._cohort, description=f"{cohort}: epochs", total=None, visible=True)

    def after_step(self, training: Training) -> None:
        """Update both bars at the end of an epoch of a training."""
        if training.at.step == 0:
            epoch, epochs = training.at.epoch, training.job.recipe.epochs
            self._bars.update(self._cohort, completed=epoch, total=epochs)
            self._bars.update(self._study, completed=self._done + training.job.runs * epoch / epochs)

    def show_workers(self, workers: int, running: float) -> None:
        """Show the number of workers, and how many runs their cohorts amount to so far."""
        label = f"{workers} worker{'' if workers == 1 else 's'}: runs" if workers else "waiting for a worker: runs"
        self._bars.update(self._study, description=label, completed=self._done + running)

    def finish(self, runs: int) -> None:
        """Count the runs of a cohort as done."""
        self._done += runs
        self._bars.update(self._study, completed=self._done)
