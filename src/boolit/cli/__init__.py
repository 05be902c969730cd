"""The command ``boolit``: it parses, calls the lab and prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from boolit.lab.extras import EXTRAS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and exits: 0 done, 1 a check failed, 2 bad input, 3 another process has the rest, 130 interrupted.

    Only here is the extra ``lab`` imported, so that its absence can be told in one line.
    """
    try:
        from boolit.cli._app import run

        sys.exit(run(arguments))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS["lab"]:
            raise
        sys.exit(_complain(f"boolit's commands need the extra: pip install 'boolit[lab]' ({package} is missing)"))
    except KeyboardInterrupt:
        sys.exit(130)


def _complain(line: str) -> int:
    print(line, file=sys.stderr)
    return 2
