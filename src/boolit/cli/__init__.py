"""The command ``boolit``: it parses, calls the lab and prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from boolit import __version__
from boolit.cli._signals import INTERRUPTED, INTERRUPTS, READER_GONE, is_follower, print_interrupted
from boolit.errors import EXTRAS, IMPORTED_AS

__all__ = ["main", "print_error"]

LONGEST = 1_000  # characters of an error


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 1 a check failed, 2 bad input, 3 workers failed, 130 interrupted, 141 broken pipe."""
    for name in ("stdout", "stderr"):  # None if the shell closed it
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if arguments is None:
        INTERRUPTS.exit_at_once()
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        if given == ["--version"]:  # needs neither the extra nor its time
            print(f"boolit {__version__}")
            code = 0
        else:
            from boolit.cli._app import run

            code = run(given)
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        package = IMPORTED_AS.get(module, module)
        extra = next((name for name in ("lab", "cluster") if package in EXTRAS[name]), None)
        if extra is None:
            raise
        who = "boolit's commands need" if extra == "lab" else "--workers and --cluster need"
        print(f"{who} the extra: pip install 'boolit[{extra}]' ({package} is missing)", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        code = _discard_output(READER_GONE)
    except OSError as error:  # of the last flush: `run` tells of its own
        print_error(f"standard output cannot be written ({error.strerror}); free some space")
        code = _discard_output(2)
    except BaseException as error:
        # An extension that is being imported may turn the interrupt into an error of its own.
        if not (INTERRUPTS.received or isinstance(error, KeyboardInterrupt)):
            raise
        print_interrupted()
        code = INTERRUPTED
    INTERRUPTS.ignore()
    sys.exit(code)


def _discard_output(code: int) -> int:
    """Discards what is left in the buffer of standard output: Python would try to write it again, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def print_error(message: object) -> None:
    """``error: …`` on standard error, on one line whatever the message holds; of several processes, one says it."""
    line = " ".join(str(message).split())
    if not is_follower():
        print("error:", line if len(line) <= LONGEST else f"{line[:LONGEST]}…", file=sys.stderr)
