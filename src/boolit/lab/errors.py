"""Which exceptions are the user's to mend: those become one line and exit code 2; every other one keeps its traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """Something the user gave is not usable; the message names the value, the rule and the fix, in one sentence."""


@contextmanager
def user_input() -> Iterator[None]:
    """Around code that only reads what the user gave: the library's refusals in it are the user's to mend.

    Example:
        >>> from boolit.nn import Gate
        >>> with user_input():
        ...     Gate("or", k=1)
        Traceback (most recent call last):
        boolit.lab.errors.UserError: k=1 is not a group size: a gate reads at least 2 channels
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, IndexError, OSError) as error:
        raise UserError(str(error)) from error
