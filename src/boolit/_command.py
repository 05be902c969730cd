"""What ends the command ``boolit`` before its work does: Ctrl-C, SIGTERM, a reader that has gone.

The package imports this before torch, so that Ctrl-C is one line from the first moment on. A program that imports boolit
keeps its own signals.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
READER_GONE = 141  # what a shell says of a program that SIGPIPE has ended
GOING_ON = "interrupted: nothing that was finished is lost; the same command goes on from there"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def is_command() -> bool:
    """Whether this process is the command: its script, or ``python -m boolit``."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":  # while Python looks for the module
        return "boolit" in sys.orig_argv[1:] and sys.orig_argv[sys.orig_argv.index("boolit") - 1] == "-m"
    return os.path.basename(program) in ("boolit", "boolit.exe")


def follows() -> bool:
    """Whether torchrun started this process as another than the first, which speaks for all."""
    return os.environ.get("RANK", "0") != "0"


def say_going_on() -> None:
    """The line an interrupted command ends with, on standard error."""
    if not follows():
        os.write(2, f"{GOING_ON}\n".encode())


class Signals:
    """How Ctrl-C and SIGTERM are taken: until `raise_them` they end the process at once, which imports cannot garble."""

    def __init__(self) -> None:
        self.received = False

    def exit_at_once(self) -> None:
        """For the time of imports; a signal that is ignored, as under nohup, stays so."""
        self._set(_leave)

    def raise_them(self) -> None:
        """For the work itself: a signal is a KeyboardInterrupt, so that files and processes are closed."""
        self._set(self._raise)

    def ignore(self) -> None:
        """For the end: what is done is done."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        self.received = True
        raise KeyboardInterrupt

    def _set(self, action: object) -> None:
        for number in SIGNALS:
            # A follower that waits for the others in native code would not notice: the system ends it.
            theirs = follows() and number == signal.SIGTERM
            if signal.getsignal(number) is not signal.SIG_IGN and not theirs:
                signal.signal(number, action)  # type: ignore[arg-type]


def _leave(_number: int, _frame: FrameType | None) -> None:
    say_going_on()
    os._exit(INTERRUPTED)


SIGNALS_TAKEN = Signals()
if is_command():
    SIGNALS_TAKEN.exit_at_once()
