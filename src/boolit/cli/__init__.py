"""The command ``boolit``: it parses, calls the lab and prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from boolit._command import INTERRUPTED, READER_GONE, SIGNALS_TAKEN, is_command, say_going_on
from boolit.lab.common.errors import EXTRAS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and exits: 0 done, 1 a check failed, 2 bad input, 3 another process has the rest, 130 interrupted, 141
    the reader of its output left.

    Only here is the extra ``lab`` imported, so that its absence can be told in one line.
    """
    try:
        from boolit.cli._app import run

        if is_command():
            SIGNALS_TAKEN.raise_them()
        code = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS["lab"]:
            raise
        code = _complain(f"boolit's commands need the extra: pip install 'boolit[lab]' ({package} is missing)")
    except BrokenPipeError:
        code = _without_output(READER_GONE)
    except OSError as error:  # of the last flush: `run` tells of its own
        code = _without_output(_complain(f"error: standard output cannot be written ({error.strerror}); free some space"))
    except BaseException as error:
        # An extension that is being imported may turn the interrupt into an error of its own.
        if not (SIGNALS_TAKEN.received or isinstance(error, KeyboardInterrupt)):
            raise
        say_going_on()
        code = INTERRUPTED
    if is_command():
        SIGNALS_TAKEN.ignore()
    sys.exit(code)


def _without_output(code: int) -> int:
    """Lets what is left in the buffer of standard output go nowhere: Python would try once more, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _complain(line: str) -> int:
    print(line, file=sys.stderr)
    return 2
