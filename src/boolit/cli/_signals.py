"""Reactions to Ctrl-C, SIGTERM and closed pipes."""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130
READER_GONE = 141  # as a shell reports for a program that SIGPIPE has ended
INTERRUPT_MESSAGE = "interrupted: finished runs are kept, and the same command continues"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def is_follower() -> bool:
    """Return whether torchrun started this process and it is not the first, which prints for all."""
    return os.environ.get("RANK", "0") != "0"


def print_interrupted() -> None:
    """Write the last line of an interrupted command to standard error."""
    if not is_follower():
        os.write(2, f"{INTERRUPT_MESSAGE}\n".encode())


class InterruptHandler:
    """The reaction to Ctrl-C and SIGTERM while a command runs. A program that only imports boolit keeps its own."""

    received = False
    installed = False

    def exit_at_once(self) -> None:
        """End the process at a signal, since importing torch cannot be interrupted safely."""
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
            # A follower may wait for the others in native code and would not notice SIGTERM, so the system ends it.
            by_system = is_follower() and number == signal.SIGTERM
            if signal.getsignal(number) is not signal.SIG_IGN and not by_system:  # nohup and scripts ignore signals
                signal.signal(number, action)  # type: ignore[arg-type]


INTERRUPTS = InterruptHandler()
