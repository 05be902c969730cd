"""What ends the command ``boolit`` early: Ctrl-C, SIGTERM, a reader that has gone.

The package imports this first, so that Ctrl-C is one line from the first moment on. A program that imports boolit keeps its
own signals.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
READER_GONE = 141  # what a shell says of a program that SIGPIPE has ended
INTERRUPT_MESSAGE = "interrupted: nothing that was finished is lost; the same command goes on from there"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def is_command() -> bool:
    """Whether this process is the command: its script, or ``python -m boolit``."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":  # while Python looks for the module
        return "boolit" in sys.orig_argv[1:] and sys.orig_argv[sys.orig_argv.index("boolit") - 1] == "-m"
    return os.path.basename(program) in ("boolit", "boolit.exe")


def is_follower() -> bool:
    """Whether torchrun started this process as another than the first, which speaks for all."""
    return os.environ.get("RANK", "0") != "0"


def print_interrupted() -> None:
    """The line an interrupted command ends with, on standard error."""
    if not is_follower():
        os.write(2, f"{INTERRUPT_MESSAGE}\n".encode())


class InterruptHandler:
    """What Ctrl-C and SIGTERM do: first they end the process at once, as an import cannot be interrupted safely."""

    received = False

    def exit_at_once(self) -> None:
        """For the time of imports; a signal that is ignored, as under nohup, stays so."""
        self._install(self._exit)

    def raise_interrupt(self) -> None:
        """For the work itself: a signal is a KeyboardInterrupt, so that files and processes are closed."""
        self._install(self._raise)

    def ignore(self) -> None:
        """For the end: nothing is left to interrupt."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _exit(self, _number: int, _frame: FrameType | None) -> None:
        print_interrupted()
        os._exit(INTERRUPTED)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        self.received = True
        raise KeyboardInterrupt

    def _install(self, action: object) -> None:
        for number in SIGNALS:
            # A follower that waits for the others in native code would not notice: the system ends it.
            by_system = is_follower() and number == signal.SIGTERM
            if signal.getsignal(number) is not signal.SIG_IGN and not by_system:
                signal.signal(number, action)  # type: ignore[arg-type]


INTERRUPTS = InterruptHandler()
if is_command():
    INTERRUPTS.exit_at_once()
