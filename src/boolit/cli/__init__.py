"""The command ``boolit``: parse the arguments, call the library and print the result."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from boolit import __version__
from boolit.cli._signals import INTERRUPTED, INTERRUPTS, READER_GONE, is_follower, print_interrupted
from boolit.errors import EXTRAS, IMPORTED_AS

__all__ = ["main", "print_error"]

MAX_ERROR_LENGTH = 1_000


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with one of the codes in `boolit.cli._app.EXIT_CODES`."""
    for name in ("stdout", "stderr"):  # None if the shell closed it
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    if arguments is None:
        INTERRUPTS.exit_at_once()
        if "OMP_WAIT_POLICY" not in os.environ:
            # GNU's OpenMP, which torch uses, otherwise spins so long that a busy core makes training 20 times as slow.
            os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        code = _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        package = IMPORTED_AS.get(module, module)
        extra = next((name for name in ("lab", "cluster") if package in EXTRAS[name]), None)
        if extra is None:
            raise
        feature = "boolit's commands need" if extra == "lab" else "--workers and --cluster need"
        print(f"{feature} the extra: pip install 'boolit[{extra}]' ({package} is missing)", file=sys.stderr)
        code = 2
    except BrokenPipeError:
        code = _discard_output(READER_GONE)
    except OSError as error:  # from the last flush; `_app.run` reports all others
        print_error(f"standard output cannot be written ({error.strerror}); free some space")
        code = _discard_output(2)
    except BaseException as error:
        # A compiled module that is interrupted while it is imported raises one of these instead of KeyboardInterrupt.
        failed_import = INTERRUPTS.received and isinstance(error, ImportError | SystemError)
        if not (failed_import or isinstance(error, KeyboardInterrupt)):
            raise
        print_interrupted()
        code = INTERRUPTED
    INTERRUPTS.ignore()
    if arguments is None and "RANK" in os.environ:
        # Under torchrun. Threads of gloo outlive the process group and sometimes abort a process that exits in order
        # (github.com/pytorch/pytorch/pull/179291).
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):  # nobody reads, or it is closed
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(arguments: list[str]) -> int:
    """Run `--version` and `doctor` without the packages of the extra, and all other commands with them."""
    if arguments == ["--version"]:
        print(f"boolit {__version__}")
    elif arguments in (["doctor"], ["doctor", "--json"]):
        from boolit.cli._doctor import print_facts

        print_facts(json="--json" in arguments)
    else:
        from boolit.cli._app import run

        return run(arguments)
    return 0


def _discard_output(code: int) -> int:
    """Discard the rest of standard output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def print_error(message: object) -> None:
    """Print ``error: …`` on one line of standard error; under torchrun only the first process prints."""
    line = " ".join(str(message).split())
    if not is_follower():
        print("error:", line[:MAX_ERROR_LENGTH], file=sys.stderr)
