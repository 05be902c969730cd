"""Progress of a study: cohorts, epochs and the time left."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn

from boolit.lab.common.progress import LineProgress, progress_bars
from boolit.lab.results.names import paper_name
from boolit.lab.training import StackedTraining


class StudyProgress(AbstractContextManager["StudyProgress"]):
    """Two bars on the error stream: all cohorts, weighed by their runs, and the epochs of the present one.

    Where the stream is no terminal, a line when the first cohort starts that says how many runs are to be trained, one every
    ten seconds and one at the end; nothing if ``shown`` is False. ``already`` is how many runs are done before it begins.
    """

    def __init__(self, total_runs: int, shown: bool | None = None, console: Console | None = None, already: int = 0) -> None:
        self._bars = progress_bars(
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            shown=shown,
            console=console,
        )
        self._study = self._bars.add_task("runs", total=total_runs)
        self._cohort: TaskID = self._bars.add_task("epochs", total=None, visible=False)
        self._before = 0.0
        self._first_line = f"training {_count(total_runs - already)} …"
        self._first_line += f" ({already:,} are there already)" if already else ""

    def __enter__(self) -> StudyProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def note(self, line: str) -> None:
        """Prints a line on the error stream, above the bars if they are shown."""
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def begin(self, activation: str, parameters: int, runs: int) -> None:
        """A cohort starts."""
        self._print_first_line()
        name = activation if self._bars.console.options.ascii_only else paper_name(activation)
        what = f"{name}, {parameters:,} parameters, {_count(runs)}: epochs"
        self._bars.reset(self._cohort, description=what, total=None, visible=True)

    def show_workers(self, workers: int, cohorts: int, done: int, partly: float) -> None:
        """How many of the cohorts are done on a cluster; those that are not amount to ``partly`` runs."""
        self._print_first_line()
        what = f"{workers} worker{'' if workers == 1 else 's'}: cohorts" if workers else "waiting for a worker: cohorts"
        self._bars.update(self._cohort, description=what, completed=done, total=cohorts, visible=True)
        self._bars.update(self._study, completed=self._before + partly)

    def _print_first_line(self) -> None:
        if self._first_line and isinstance(self._bars, LineProgress):
            self._bars.print_now(self._first_line)
            self._first_line = ""

    def after_step(self, training: StackedTraining) -> None:
        """A step of the present cohort was made."""
        if training.at.step:
            return
        epochs = training.job.recipe.epochs
        self._bars.update(self._cohort, completed=training.at.epoch, total=epochs)
        self._bars.update(self._study, completed=self._before + training.job.runs * training.at.epoch / epochs)

    def finish(self, runs: int) -> None:
        """Runs of the study are done, trained now or earlier."""
        self._before += runs
        self._bars.update(self._study, completed=self._before)


def _count(runs: int) -> str:
    return f"{runs:,} run{'' if runs == 1 else 's'}"
