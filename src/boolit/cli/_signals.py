"""What ends the command ``boolit`` early: Ctrl-C, SIGTERM, or a closed pipe."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
READER_GONE = 141  # what a shell reports for a program that SIGPIPE has ended
INTERRUPT_MESSAGE = "interrupted: nothing that was finished is lost; the same command goes on from there"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def is_follower() -> bool:
    """Return whether torchrun started this process as another than the first, which speaks for all."""
    return os.environ.get("RANK", "0") != "0"


def print_interrupted() -> None:
    """Write the last line of an interrupted command to standard error."""
    if not is_follower():
        os.write(2, f"{INTERRUPT_MESSAGE}\n".encode())


class InterruptHandler:
    """The reaction to Ctrl-C and SIGTERM, from the start of the command on. Without a command, signals are left alone."""

    received = False
    installed = False

    def exit_at_once(self) -> None:
        """End the process at a signal, since an import cannot be interrupted safely."""
        self.installed = True
        self._install(self._exit)

    def raise_interrupt(self) -> None:
        """Turn a signal into a KeyboardInterrupt, so that files and processes are closed."""
        if self.installed:
            self._install(self._raise)

    def ignore(self) -> None:
        """Ignore signals at the end, when nothing is left to interrupt."""
        if self.installed:
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
            if signal.getsignal(number) is not signal.SIG_IGN and not by_system:  # ignored ones, as under nohup, stay so
                signal.signal(number, action)  # type: ignore[arg-type]


INTERRUPTS = InterruptHandler()
